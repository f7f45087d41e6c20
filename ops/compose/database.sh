#!/usr/bin/env bash
# Makes the role and the database of berth when the server's data directory is new.
set -euo pipefail
export PASSWORDS="${PASSWORDS:-/run/berth/postgres}"

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 <<'SQL'
\set password `cat "$PASSWORDS/berth"`
CREATE ROLE berth LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
CREATE DATABASE berth OWNER berth;
REVOKE ALL ON DATABASE berth FROM PUBLIC;
SQL
