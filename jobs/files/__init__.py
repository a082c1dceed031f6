"""The files of a run: found on this machine, unpacked, recognised and split. Imports no engine."""
