"""stub"""


class Verification: ...
