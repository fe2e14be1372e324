"""Jobs for tests: submitting one, and waiting for its end."""

from conftest import JOB_CLUSTER, RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, wait_for

AT = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)


def submit(ml_client, environment, text="true", compute=JOB_CLUSTER, **options):
    from azure.ai.ml import command

    job = command(command=text, environment=environment, compute=compute, **options)
    return ml_client.jobs.create_or_update(job)


def ended(ml_client, name):
    """The job, after waiting for its end."""
    over = ("Completed", "Failed", "Canceled")

    def look():
        job = ml_client.jobs.get(name)
        return job if job.status in over else None

    return wait_for(f"the end of {name}", 60, look)


def listed(ml_client, view=None):
    """The names of jobs in a list, or in this view of it."""
    from azure.ai.ml.constants import ListViewType

    options = {"list_view_type": getattr(ListViewType, view)} if view else {}
    return {job.name for job in ml_client.jobs.list(**options)}
