"""What other workers did, as their journals say it: read, turned into events, and how far it is known."""
