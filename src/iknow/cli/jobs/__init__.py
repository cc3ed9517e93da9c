"""The jobs of the command line: from files to a bundle, to assertions, to a report."""

from iknow.cli.jobs.assess import assess_job
from iknow.cli.jobs.fit import fit_job
from iknow.cli.jobs.outputs import check_page
from iknow.cli.jobs.report import renderer_by_name, report_job
from iknow.cli.jobs.source import Source

__all__ = ["Source", "assess_job", "check_page", "fit_job", "renderer_by_name", "report_job"]
