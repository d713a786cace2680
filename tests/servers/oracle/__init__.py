"""A stand-in for Oracle Database: a server that speaks its wire protocol, for python-oracledb in thin mode.

No Oracle Database can be had on a bare machine, so this is an emulator. The client is the real driver, unpatched;
what is behind it is a grammar that takes Oracle's SQL and nothing else, and a PostgreSQL that executes it:

- `packets`, `messages`, `requests`, `calls`, `answers`, `buffers`, `types`, `values`, `greeting`, `logon`, `wallet`:
  the protocol (TNS and TTC), as the driver's open source reads and writes it;
- `session`, `work`, `cursors`, `lobs`, `settings`: one client's session;
- `lexer`, `parser`, `expressions`, `conditions`, `functions`, `datatypes`, … `grammar`: the rules of the SQL Language
  Reference, each with the chapter that it comes from;
- `database`, `spares`, `dictionary.sql`: what runs on PostgreSQL, and the types, functions and views that it lacks;
- `errors`, `failures`: the ORA- codes.

`python -m tests.servers run oracle` runs one to try.
"""
