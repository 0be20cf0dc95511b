"""The first schema. An empty store gets the current one at once, so there is nothing to run here.

Edit `storage/schema.py` in place until 0.1.0 is tagged. From then on every change of it needs a later
revision with an `upgrade`, and `schema.HEAD` names the newest.
"""

revision = "0001"
down_revision = None
