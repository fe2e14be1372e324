"""The stream of a workspace's events, and the commands that follow it instead of polling."""

import json
import re
import time

import pytest
from conftest import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, WORKSPACE_FLAGS

EVENTS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers"
    f"/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}/providers/Muster.Events/events"
)
LIMIT_S = 30


class Stream:
    """Reads events as any client of server-sent events does."""

    def __init__(self, session, url, **headers):
        self.answer = session.get(url, headers=headers, stream=True, timeout=LIMIT_S)
        assert self.answer.status_code == 200, self.answer.text
        assert self.answer.headers["Content-Type"] == "text/event-stream"
        self.lines = self.answer.iter_lines(chunk_size=1, decode_unicode=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answer.close()

    def until(self, kind, name, status):
        found, fields = [], {}
        for line in self.lines:
            if line:
                field, _, value = line.partition(": ")
                fields[field] = value
                continue
            if "data" in fields:
                event = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (str(event["revision"]), event["kind"])
                found.append(event)
                if (event["kind"], event["name"], event["status"]) == (kind, name, status):
                    return found
            fields = {}
        pytest.fail(f"the stream ended after {found}")


@pytest.fixture
def cluster(muster):
    muster("workspace", "create", "--name", WORKSPACE, *WORKSPACE_FLAGS[:2], check=False)
    muster("compute", "create", "--name", "heard", "--max-instances", "1", *WORKSPACE_FLAGS)
    yield "heard"
    muster("compute", "delete", "--yes", "--name", "heard", *WORKSPACE_FLAGS)


def test_a_follower_learns_of_everything_and_resumes(session, server, muster, cluster):
    url = server.url + EVENTS
    submit = ("job", "create", "--compute", cluster, "--command", "sleep 1")
    with Stream(session, url) as stream:
        muster(*submit, "--name", "events-one", *WORKSPACE_FLAGS)
        events = stream.until("job", "events-one", "Completed")
    of_job = [event["status"] for event in events if event["kind"] == "job"]
    assert of_job[0] == "Queued" and "Running" in of_job, of_job
    nodes = [event for event in events if event["kind"] == "node"]
    assert {event["compute"] for event in nodes} == {cluster}
    assert [event["status"] for event in nodes][0] == "preparing"
    revisions = [event["revision"] for event in events]
    assert revisions == sorted(set(revisions))
    with Stream(session, url, **{"Last-Event-ID": str(revisions[0])}) as stream:
        again = stream.until("job", "events-one", "Completed")
    assert again == events[1:], "nothing is lost and nothing is repeated"
    with Stream(session, f"{url}?since={revisions[1]}") as stream:
        assert stream.until("job", "events-one", "Completed") == events[2:]


@pytest.mark.parametrize("since, status", [("999999999", 410), ("soon", 400), ("-1", 400)])
def test_a_position_that_does_not_exist_is_refused(session, server, cluster, since, status):
    answer = session.get(f"{server.url}{EVENTS}?since={since}", timeout=LIMIT_S)
    assert answer.status_code == status, answer.text
    assert since in answer.json()["error"]["message"]


def requests_for_details(session, server):
    page = session.get(f"{server.url}/metrics", timeout=LIMIT_S).text
    lines = [line for line in page.splitlines() if "/details" in line]
    counted = [re.search(r"request_seconds_count\{.*\} (\d+)", line) for line in lines]
    return sum(int(found[1]) for found in counted if found)


def test_streaming_a_job_does_not_poll_its_status(session, server, muster, cluster):
    before = requests_for_details(session, server)
    started = time.monotonic()
    done = muster(
        "job", "create", "--compute", cluster, "--command", "echo one; sleep 4; echo two",
        "--name", "events-two", "--stream", *WORKSPACE_FLAGS,
    )  # fmt: skip
    took = time.monotonic() - started
    assert done.stdout.endswith("one\ntwo\n"), done.stdout
    asked = requests_for_details(session, server) - before
    assert took > 4 and 0 < asked <= 15, f"{asked} requests in {took:.1f} s"
