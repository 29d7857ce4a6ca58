"""The program: everything behind the command `scornn`. It needs the extra `program`; the library around it does not."""
