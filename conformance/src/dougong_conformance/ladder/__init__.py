"""Tools with which a vendor's own tests climb the verification ladder without the vendor's chip.

Each module is one tool and imports nothing of a vendor: `golden` (published schemas and drift),
`calls` (binds the calls of a source tree to them), `stand_in` (registers those schemas in torch's
dispatcher over plain references), `fake_device` (traces on a device that is not here, by stricter
rules than torch's own), `platform_double` (a platform class over another device), `evidence` (what
a test writes down) and `lane_report` (what is made of it). ``docs/ladder.md`` shows each at work.
"""
