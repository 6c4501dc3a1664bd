"""Tables, files and streams that every implementation must read or refuse alike, and a runner that says which one does. See README.md."""
