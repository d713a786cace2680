"""What the pages say was survived is what a campaign has counted."""

from __future__ import annotations

from locus.testing.campaign.report import report
from locus.testing.campaign.tally import Tally
from tests.soak.__main__ import PAGE, PUBLISHED, README
from tests.soak.pages import summary
from tests.soak.sites import SITES


def test_the_pages_show_the_campaign_that_is_kept() -> None:
    tally = Tally.read(PUBLISHED)
    assert report(tally) in PAGE.read_text(encoding="utf-8")
    assert summary(tally) in README.read_text(encoding="utf-8")


def test_every_store_was_part_of_it() -> None:
    assert {*Tally.read(PUBLISHED).sites} == {*SITES}
