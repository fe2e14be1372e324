"""The blob storage, used by the real azure-storage-blob with URLs that the server signed."""

import base64
import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from own_server import WS, V


class Place:
    """A container, and the query that gives access to it."""

    def __init__(self, session, url, ca, store="workspaceblobstore"):
        self.session, self.ca = session, ca
        at = f"{url}{WS}/datastores/{store}"
        seen = session.get(at, params=V).json()["properties"]
        self.account = f"https://{seen['accountName']}.blob.{seen['endpoint']}"
        self.container = seen["containerName"]
        body = {"expirableSecret": True, "expireAfterHours": 1}
        self.sas = session.post(f"{at}/listSecrets", params=V, json=body).json()["sasToken"]

    def client(self, sas=None, **more):
        from azure.storage.blob import ContainerClient

        # Do not retry for half a minute when the response stays the same.
        more = {"connection_verify": self.ca, "retry_total": 0, **more}
        return ContainerClient(self.account, self.container, sas or self.sas, **more)

    def in_blocks(self, **more):
        """Sends everything in blocks of a mebibyte."""
        return self.client(max_single_put_size=1 << 20, max_block_size=1 << 20, **more)

    def raw(self, method, name, query="", sas=None, **more):
        """Sends the URL unchanged: no client normalises the name or the query."""
        import requests

        request = requests.Request(method, "https://x/", **more).prepare()
        sas = self.sas if sas is None else sas
        tail = f"/{name}" if name else ""
        request.url = f"{self.account}/{self.container}{tail}?{query}&{sas}"
        with requests.Session() as session:
            session.trust_env = False
            return session.send(request, verify=self.ca, timeout=30)


@pytest.fixture(scope="module")
def place(server, session, server_env):
    return Place(session, server.url, server_env["REQUESTS_CA_BUNDLE"])


@pytest.fixture(scope="module")
def container(place):
    return place.client()


@pytest.fixture
def folder():
    return f"test-{uuid.uuid4().hex}"


def test_a_blob_comes_back_as_it_went(container, folder):
    from azure.storage.blob import ContentSettings

    blob = container.get_blob_client(f"{folder}/a.bin")
    assert not blob.exists()
    content = random.Random(1).randbytes(300_000)
    settings = ContentSettings(content_type="text/plain", content_language="en")
    blob.upload_blob(content, metadata={"who": "me"}, content_settings=settings)
    assert blob.download_blob().readall() == content
    seen = blob.get_blob_properties()
    assert (seen.size, seen.metadata) == (len(content), {"who": "me"})
    assert seen.content_settings.content_type == "text/plain"
    assert seen.content_settings.content_language == "en"
    blob.set_blob_metadata({"upload_status": "completed", "name": "x"})
    again = blob.get_blob_properties()
    assert again.metadata == {"upload_status": "completed", "name": "x"}
    assert again.etag != seen.etag
    assert again.content_settings.content_type == "text/plain"
    blob.delete_blob()
    assert not blob.exists()


def test_nothing_is_a_blob_too(container, folder):
    blob = container.get_blob_client(f"{folder}/empty")
    blob.upload_blob(b"")
    assert blob.download_blob().readall() == b""
    assert blob.get_blob_properties().size == 0


def test_blocks_sent_at_once_and_parts_read_back(place, folder):
    content = random.Random(2).randbytes(9_000_001)
    blob = place.in_blocks().get_blob_client(f"{folder}/large.bin")
    blob.upload_blob(content, max_concurrency=4)
    assert blob.download_blob(max_concurrency=4).readall() == content
    for offset, length in [(0, 1), ((1 << 20) - 1, 2), (5_000_000, 3_000_000), (9_000_000, 1)]:
        part = blob.download_blob(offset=offset, length=length).readall()
        assert part == content[offset : offset + length], (offset, length)
    assert blob.download_blob(offset=8_999_999, length=9).readall() == content[8_999_999:]
    committed, waiting = blob.get_block_list("all")
    assert (len(committed), waiting) == (9, [])


def test_lists_by_prefix_delimiter_and_page(container, folder):
    names = [f"{folder}/{name}" for name in ("a", "b/1", "b/2", "b/c/3", "b.txt", "c/x", "z")]
    for name in names:
        container.upload_blob(name, name.encode(), metadata={"n": "1"})
    listed = container.list_blobs(name_starts_with=f"{folder}/", include=["metadata"])
    seen = {blob.name: (blob.size, blob.metadata) for blob in listed}
    assert seen == {name: (len(name), {"n": "1"}) for name in names}
    assert [blob.name for blob in container.list_blobs(f"{folder}/b/")] == names[1:4]
    walked = container.walk_blobs(f"{folder}/", delimiter="/")
    walked = [item.name.removeprefix(folder) for item in walked]
    assert sorted(walked) == ["/a", "/b.txt", "/b/", "/c/", "/z"]
    for size in (1, 2, 3):
        pages = container.list_blobs(f"{folder}/", results_per_page=size).by_page()
        pages = [[blob.name for blob in page] for page in pages]
        assert all(0 < len(page) <= size for page in pages)
        assert sum(pages, []) == sorted(names)
    assert list(container.list_blobs(f"{folder}/nothing")) == []


def test_conditions_are_kept(container, folder):
    from azure.core import MatchConditions
    from azure.core.exceptions import (
        HttpResponseError,
        ResourceExistsError,
        ResourceModifiedError,
    )

    blob = container.get_blob_client(f"{folder}/x")
    first = blob.upload_blob(b"one")
    with pytest.raises(ResourceExistsError) as refused:
        blob.upload_blob(b"two")
    assert refused.value.error_code == "BlobAlreadyExists"
    same = {"etag": first["etag"], "match_condition": MatchConditions.IfNotModified}
    second = blob.upload_blob(b"two", overwrite=True, **same)
    with pytest.raises(ResourceModifiedError):
        blob.upload_blob(b"three", overwrite=True, **same)
    with pytest.raises(ResourceModifiedError):
        blob.delete_blob(**same)
    other = {"etag": second["etag"], "match_condition": MatchConditions.IfModified}
    with pytest.raises(HttpResponseError) as kept:
        blob.get_blob_properties(**other)
    assert kept.value.status_code == 304
    assert blob.download_blob().readall() == b"two"


def test_names_are_never_changed(container, place, folder):
    names = [
        f"{folder}/../../../etc/passwd",
        f"{folder}//x",
        f"{folder}/./y/",
        f"{folder}/ünï/日本/🦀",
        f"{folder}/a b+c%2Fd?e#f&g<h>",
        f"{folder}/tab\tline\nend",
        f"{folder}/{'n' * (1_023 - len(folder))}",
    ]
    from urllib.parse import quote

    for name in names:
        sent = place.raw("PUT", quote(name, safe="/"), data=name.encode())
        assert sent.status_code == 201, (name, sent.text)
    assert sorted(blob.name for blob in container.list_blobs(f"{folder}/")) == sorted(names)
    for name in names:
        got = place.raw("GET", quote(name, safe="/"))
        assert got.content == name.encode(), name
    long = place.raw("PUT", f"{folder}/{'n' * 1_024}", data=b"")
    assert (long.status_code, long.headers["x-ms-error-code"]) == (400, "InvalidResourceName")


def test_an_address_without_its_account_leads_to_the_same_blob(container, place, folder):
    container.upload_blob(f"{folder}/x", b"found")
    base = place.account.rsplit("/", 1)[0]
    import requests

    at = f"{base}/{place.container}/{folder}/x?{place.sas}"
    assert requests.get(at, verify=place.ca, timeout=30).content == b"found"


def test_content_that_changed_on_its_way_is_refused(container, place, folder):
    blob = container.get_blob_client(f"{folder}/checked")
    blob.upload_blob(b"checked", validate_content=True)
    wrong = {"Content-MD5": base64.b64encode(bytes(16)).decode()}
    refused = place.raw("PUT", f"{folder}/wrong", data=b"x", headers=wrong)
    assert (refused.status_code, refused.headers["x-ms-error-code"]) == (400, "Md5Mismatch")
    assert place.raw("HEAD", f"{folder}/wrong").headers["x-ms-error-code"] == "BlobNotFound"


@pytest.mark.parametrize(
    ("method", "query", "headers", "body", "code"),
    [
        ("PUT", "comp=block&blockid=%2A", {}, b"x", "InvalidQueryParameterValue"),
        ("PUT", "comp=blocklist", {}, b"<BlockList><Latest>", "InvalidXmlDocument"),
        (
            "PUT",
            "comp=blocklist",
            {},
            b"<BlockList><Latest>bm9uZQ==</Latest></BlockList>",
            "InvalidBlockList",
        ),
        ("PUT", "comp=lease", {}, b"", "InvalidQueryParameterValue"),
        ("PUT", "", {"x-ms-blob-type": "PageBlob"}, b"", "InvalidHeaderValue"),
        ("PUT", "", {"x-ms-meta-a": "v" * 9_000}, b"", "MetadataTooLarge"),
        ("PUT", "", {"x-ms-structured-body": "XSM/1.0"}, b"", "UnsupportedHeader"),
        ("PUT", "comp=metadata", {}, b"", "BlobNotFound"),
        ("GET", "", {"x-ms-range": "bytes=9-1"}, b"", "InvalidHeaderValue"),
        ("GET", "snapshot=2020-01-01", {}, b"", "InvalidQueryParameterValue"),
        ("GET", "", {}, b"", "BlobNotFound"),
        ("DELETE", "", {}, b"", "BlobNotFound"),
        ("PATCH", "", {}, b"", "UnsupportedHttpVerb"),
    ],
)
def test_bad_requests_get_an_explanation(place, folder, method, query, headers, body, code):
    answer = place.raw(method, f"{folder}/x", query, headers=headers, data=body)
    assert answer.headers["x-ms-error-code"] == code, answer.text
    assert 400 <= answer.status_code < 500
    assert f"<Code>{code}</Code><Message>" in answer.text
    assert place.raw("HEAD", f"{folder}/x").headers["x-ms-error-code"] == "BlobNotFound"


def test_a_signed_address_opens_what_it_says_and_nothing_else(place, session, server, folder):
    place.client().upload_blob(f"{folder}/x", b"x")
    other = Place(session, server.url, place.ca, "workspaceartifactstore")
    assert other.container != place.container
    fields = dict(pair.split("=", 1) for pair in place.sas.split("&"))

    def changed(**more):
        return "&".join(f"{key}={value}" for key, value in {**fields, **more}.items())

    late = fields["se"].replace("202", "203", 1)
    for sas in [
        other.sas,
        changed(se=late),
        changed(sp="racwdlx"),
        changed(sr="b"),
        changed(sig="0" * 64),
        changed(sv="2099-01-01"),
        changed(sip="127.0.0.1"),
    ]:
        refused = place.raw("GET", f"{folder}/x", sas=sas)
        assert refused.status_code == 403, sas
        assert refused.headers["x-ms-error-code"] == "AuthenticationFailed"
    twice = place.raw("GET", f"{folder}/x", "sp=rwdl")
    assert twice.status_code == 400
    bare = place.raw("GET", f"{folder}/x", sas="")
    assert (bare.status_code, bare.headers["x-ms-error-code"]) == (
        401,
        "NoAuthenticationInformation",
    )
    made = place.raw("PUT", "", "restype=container")
    assert made.status_code == 403


def test_a_token_for_storage_opens_by_role(place, session, server, server_env, folder):
    from azure.core.credentials import AccessToken

    def token(resource):
        answer = session.get(
            server_env["IDENTITY_ENDPOINT"],
            params={"api-version": "2019-08-01", "resource": resource},
            headers={"X-IDENTITY-HEADER": server_env["IDENTITY_HEADER"]},
        )
        return answer.json()["access_token"]

    class Owner:
        def get_token(self, *_, **__):
            return AccessToken(token("https://storage.azure.com"), 2**31)

    mine = place.client(Owner())
    mine.upload_blob(f"{folder}/x", b"by role")
    assert mine.download_blob(f"{folder}/x").readall() == b"by role"
    wrong = {"Authorization": f"Bearer {token(server.url)}"}
    refused = place.raw("GET", f"{folder}/x", sas="", headers=wrong)
    assert refused.status_code == 401


def test_two_that_send_one_blob_at_once_leave_one_of_the_two(place, folder):
    contents = [bytes([number]) * 3_000_000 for number in range(4)]
    blob = place.in_blocks().get_blob_client(f"{folder}/x")

    def send(content):
        from azure.core.exceptions import HttpResponseError

        try:
            blob.upload_blob(content, overwrite=True, max_concurrency=2)
            return True
        except HttpResponseError as refused:
            # Another client committed first, and the uncommitted blocks were dropped.
            assert refused.error_code == "InvalidBlockList"
            return False

    with ThreadPoolExecutor(4) as pool:
        assert any(pool.map(send, contents))
    assert blob.download_blob().readall() in contents


def test_many_are_deleted_in_one_request(container, place, folder):
    from azure.storage.blob import PartialBatchErrorException

    names = [f"{folder}/{number} ü" for number in range(5)]
    for name in names:
        container.upload_blob(name, b"1")
    done = container.delete_blobs(*names[:3])
    assert [answer.status_code for answer in done] == [202, 202, 202]
    assert [blob.name for blob in container.list_blobs(name_starts_with=folder)] == names[3:]
    # A blob that does not exist does not stop the others from being deleted.
    with pytest.raises(PartialBatchErrorException) as failed:
        container.delete_blobs(names[0], names[3])
    assert [answer.status_code for answer in failed.value.parts] == [404, 202]
    assert [blob.name for blob in container.list_blobs(name_starts_with=folder)] == names[4:]

    def send(part, kind="multipart/mixed; boundary=b"):
        body = f"--b\r\nContent-ID: 0\r\n\r\n{part}\r\n\r\n--b--".encode()
        query = "restype=container&comp=batch"
        return place.raw("POST", "", query, data=body, headers={"Content-Type": kind})

    at = f"/{place.container}/{folder}/4%20%C3%BC"
    unsigned = send(f"DELETE {at} HTTP/1.1")
    assert unsigned.status_code == 202 and "HTTP/1.1 401 " in unsigned.text, "each has its own ETag"
    assert "HTTP/1.1 405 " in send(f"PUT {at}?{place.sas} HTTP/1.1").text
    assert send("nothing").status_code == 400
    assert send(f"DELETE {at}?{place.sas} HTTP/1.1", "text/plain").status_code == 400
    assert [blob.name for blob in container.list_blobs(name_starts_with=folder)] == names[4:]
