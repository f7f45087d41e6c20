"""Do the commands of the documentation run as they are printed?"""
