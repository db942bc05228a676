"""The certificate that the daemon shows, looked at again when its files change."""

import ssl

from wakeful.config.certificates import context_of
from wakeful.config.settings import TlsSettings


class Certificate:
    """A TLS context for servers. Connections that are open keep the certificate they began with."""

    def __init__(self, files: TlsSettings) -> None:
        """Raises OSError if a file cannot be read, or if the two are no certificate and its key."""
        self._files = files
        self._stamps = self._stamp()
        self._current = self._read()
        self.pem = self._read_pem()
        """Key and certificate as they stand in the files, for libraries that have TLS of their own. The pair of another day is another object."""
        self.context = self._read()
        """For the listening socket. Each handshake goes over to the certificate of the day."""
        self.context.sni_callback = self._choose

    def renew(self) -> bool:
        """Show what is in the files now, if they have changed; was there a change?

        Raises as the constructor does, and then goes on with the old one: a certificate and its key are two files, and one is written before
        the other.
        """
        stamps = self._stamp()
        if stamps == self._stamps:
            return False
        self._current, self.pem = self._read(), self._read_pem()
        self._stamps = stamps
        return True

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        handshake.context = self._current

    def _read(self) -> ssl.SSLContext:
        return context_of(self._files.certificate, self._files.key)

    def _read_pem(self) -> tuple[bytes, bytes]:
        return self._files.key.read_bytes(), self._files.certificate.read_bytes()

    def _stamp(self) -> list[tuple[int, int, int]]:
        stats = [path.stat() for path in (self._files.certificate, self._files.key)]
        return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]
