"""Certificates, ours and the operator's, are renewed while clients are connected."""

import datetime
import os
import signal
import socket
import ssl
import subprocess

import pytest
import requests
from conftest import wait_for
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from own_server import WS, V, own  # noqa: F401

HOST = "muster.test"
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def new_key():
    return ec.generate_private_key(ec.SECP256R1())


def certificate(name, key, issuer, issuer_key, start=-1, end=30, is_ca=False):
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + start * DAY)
        .not_valid_after(NOW + end * DAY)
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
    )
    if not is_ca:
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


class Authority:
    """A CA of the operator, and the two files that it writes."""

    def __init__(self, folder):
        self.key = new_key()
        self.certificate = certificate("Lab CA", self.key, "Lab CA", self.key, is_ca=True)
        self.cert_file, self.key_file = folder / "own.pem", folder / "own.key"

    def write(self, name=HOST, **times):
        """Writes a new certificate to the files, and returns its serial number."""
        key = new_key()
        leaf = certificate(name, key, "Lab CA", self.key, **times)
        chain = b"".join(each.public_bytes(PEM) for each in (leaf, self.certificate))
        plain = serialization.NoEncryption()
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain)
        for path, content in ((self.key_file, private), (self.cert_file, chain)):
            fresh = path.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_bytes(content)
            fresh.rename(path)
        return leaf.serial_number

    @property
    def flags(self):
        return ("--tls-cert", self.cert_file, "--tls-key", self.key_file, "--public-host", HOST)


PEM = serialization.Encoding.PEM


def connect(port, name, ca):
    context = ssl.create_default_context(cafile=ca)
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    return context.wrap_socket(plain, server_hostname=name)


def serial(connection):
    return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True)).serial_number


def serial_now(server, name, ca):
    with connect(server.port, name, ca) as connection:
        return serial(connection)


def still_answers(connection):
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    return b"200 OK" in connection.recv(1000)


def test_ours_is_renewed_without_a_restart(own):  # noqa: F811
    server = own(how="serve")
    with connect(server.port, "localhost", server.ca) as old:
        before = serial(old)
        (server.state / "pki" / "server.pem").unlink()  # As if it had expired.
        server.process.send_signal(signal.SIGHUP)

        def has_changed():
            assert still_answers(old)
            return serial_now(server, "localhost", server.ca) != before

        wait_for("a new certificate", 9, has_changed)
        assert still_answers(old)
    assert server.stop() == 0


# Takes 20 s: a server looks at its certificate's files every ten seconds.
def test_the_operators_is_taken_when_its_files_change(own, tmp_path):  # noqa: F811
    authority = Authority(tmp_path)
    first = authority.write()
    server = own(*authority.flags)
    env = server.env()
    bundle = env["REQUESTS_CA_BUNDLE"]
    assert server.url.startswith(f"https://{HOST}:") and env["NODE_EXTRA_CA_CERTS"] == bundle
    with connect(server.port, HOST, bundle) as old:
        assert serial(old) == first
        # For another name and for an IP address, our own certificate is used.
        assert serial_now(server, "localhost", server.ca) != first
        assert serial_now(server, "127.0.0.1", server.ca) != first
        second = authority.write()

        def is_second():
            # A connection that is idle for ten seconds is closed, whatever its certificate.
            assert still_answers(old)
            return serial_now(server, HOST, bundle) == second

        wait_for("the new certificate, without a signal", 20, is_second)
        assert still_answers(old)
    authority.write(name="other.test")  # This file is unusable, and changes nothing.
    wait_for("a message about it", 20, lambda: "not for muster.test" in server.log.read_text())
    assert serial_now(server, HOST, bundle) == second
    assert server.stop() == 0


def test_nodes_reach_a_server_with_the_operators_certificate(own, tmp_path):  # noqa: F811
    authority = Authority(tmp_path)
    authority.write()
    server = own(*authority.flags)
    here = f"https://127.0.0.1:{server.port}"
    with requests.Session() as session:
        session.trust_env, session.verify = False, server.ca
        query = {"api-version": "2019-08-01", "resource": server.url}
        key = {"X-IDENTITY-HEADER": server.key}
        token = session.get(f"{here}/msi/token", params=query, headers=key).json()
        session.headers["Authorization"] = f"Bearer {token['access_token']}"
        scale = {"minNodeCount": 1, "maxNodeCount": 1}
        size = {"vmSize": "Standard_DS3_v2", "scaleSettings": scale}
        properties = {"computeType": "AmlCompute", "properties": size}
        body = {"location": "eastus", "properties": properties}
        cluster = f"{here}{WS}/computes/cpu"
        assert session.put(cluster, params=V, json=body).status_code in (200, 201)

        def idle_nodes():
            shown = session.get(cluster, params=V).json()["properties"]["properties"]
            return shown["nodeStateCounts"]["idleNodeCount"]

        wait_for("a node", 20, idle_nodes)
        gone = {**V, "underlyingResourceAction": "Delete"}
        assert session.delete(cluster, params=gone).status_code in (200, 202)
        wait_for("its end", 20, lambda: session.get(cluster, params=V).status_code == 404)
    assert server.stop() == 0


def refuse(muster_bin, tmp_path, *flags):
    done = subprocess.run(
        [muster_bin, "up", "--state-dir", tmp_path / "state", "--listen", "127.0.0.1:0", *flags],
        capture_output=True,
        text=True,
        timeout=20,
        env=dict(os.environ),
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"end": -3, "start": -9}, "expired 3 days ago"),
        ({"start": 1}, "is not valid yet"),
        ({"name": "other.test"}, "is not for muster.test (it is for: DNSName(other.test))"),
    ],
)
def test_a_useless_certificate_is_refused_at_start(muster_bin, tmp_path, how, words):
    authority = Authority(tmp_path)
    authority.write(**how)
    assert words in refuse(muster_bin, tmp_path, *authority.flags)


def test_a_key_that_does_not_belong_is_refused_at_start(muster_bin, tmp_path):
    authority = Authority(tmp_path)
    authority.write()
    cert = authority.cert_file.read_bytes()
    authority.write()
    authority.cert_file.write_bytes(cert)
    assert "does not match the certificate" in refuse(muster_bin, tmp_path, *authority.flags)
    authority.cert_file.write_bytes(b"-----BEGIN NOTHING-----")
    assert "contains no certificate in PEM format" in refuse(muster_bin, tmp_path, *authority.flags)
    authority.write()
    authority.key_file.chmod(0o644)
    assert "can be read by every user" in refuse(muster_bin, tmp_path, *authority.flags)
    authority.key_file.unlink()
    assert "does not exist" in refuse(muster_bin, tmp_path, *authority.flags)
    assert "tls-key is not" in refuse(muster_bin, tmp_path, *authority.flags[:2])
    flags = (*authority.flags[:4], "--public-host", "127.0.0.1")
    authority.write()
    assert "set --public-host" in refuse(muster_bin, tmp_path, *flags)
