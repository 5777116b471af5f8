"""Patterns of private data that is recognizable by its form: keys of known services, addresses, and paths."""

import re
from typing import Final

# where a path or an address ends
END: Final = r"\s\0\"'`|;,<>"
# characters before a slash that is not the root of a path, as in the modules of a model: `encoder/layers.0`
_WORD: Final = r"A-Za-z0-9_"

KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9])(?:"
    # GitHub, GitLab
    r"gh[a-z]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{16,}"
    # Amazon, Google
    r"|A(?:KIA|SIA|ROA|IDA|GPA|NPA)[0-9A-Z]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}"
    # web tokens
    r"|eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?|eyJ[\w-]{24,}=*"
    # Hugging Face, OpenAI and those that write theirs alike, Stripe, Replicate, Groq, NVIDIA, Databricks, W&B
    r"|hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9]{20,}|(?:sk|xai)-(?=[A-Za-z_-]{,40}\d)[\w-]{12,}"
    r"|[prs]k_(?:live|test)_\w{8,}"
    r"|(?:r8|gsk)_[A-Za-z0-9]{20,}|nvapi-[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|(?<=wandb)[^\w\n]{1,4}[0-9a-f]{40}(?![0-9a-f])|(?<=wandb login )[0-9a-f]{40}"
    # Slack, npm, PyPI, Docker, SendGrid
    r"|(?:xox[a-z]|xapp)-[\w-]{8,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|dckr_[a-z]{3}_[\w-]{16,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|(?:Bearer|Authorization: ?\w+) [\w.~+/=-]{8,}"
    r")",
    re.DOTALL,
)

_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|\d?\d)"
_HEX: Final = "[0-9A-Fa-f]"
# endings that names in Python and matrix products (`query@key.transpose`) do not have
_TOP: Final = r"(?:com|org|net|edu|gov|mil|int|info|local|localdomain|internal|intern|lan|corp|cloud|dev|[a-z]{2})"
_ENDS_HOST: Final = r"(?![\w-]|\.\w)"
ADDRESS: Final = re.compile(
    rf"\b[A-Za-z][\w+.-]{{,20}}://[^{END}]+"
    rf"|(?<![\w.+-])[\w.+-]{{2,}}@(?:[\w-]+\.)+{_TOP}{_ENDS_HOST}(?!\()"
    # places of files as scp writes them, and targets of ssh
    rf"|(?<![\w.+-])[\w.+-]+@[\w.-]+:(?=[/~]|[\w.-]+/)[^{END}]*"
    r"|(?<=ssh )(?:-\S+ (?:\d+ )?)*[\w.+-]+@[\w.-]+"
    # names of hosts with their domain
    rf"|(?<![\w./-])(?:[\w-]+\.)+(?:com|edu|gov|mil|org){_ENDS_HOST}(?!\()"
    rf"|(?<![\w./-])(?=[\w-]*[\d-])[\w-]+(?:\.[\w-]+)*\.(?:localdomain|internal|intern|lan|corp|cluster\.local)"
    rf"{_ENDS_HOST}(?!\()|(?<![\w./-])\w+(?:-\w+)+\.local{_ENDS_HOST}(?!\()"
    # IP; an identifier of C++ does not begin with a digit, as one part here does
    rf"|(?<![A-Za-z0-9.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.\d)"
    rf"|\bip(?:-{_OCTET}){{4}}(?![\w-])"
    rf"|(?<![\w:])(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}(?![\w:])"
    rf"|(?<![\w:])(?=[\w:]*::)(?=[A-Fa-f:]*\d)(?!\d+::\d+(?![\w:]))"
    rf"(?:[23]{_HEX}{{3}}|f[cdCD]{_HEX}{{2}}|[fF][eE][89abAB]{_HEX}|64:ff9b)(?:::?{_HEX}{{1,4}})*(?:::)?(?:%\w+)?(?!\w|:\w)"
    # MAC, of InfiniBand, and of PCI
    rf"|(?<![\w:])(?:{_HEX}{{2}}:){{5}}{_HEX}{{2}}(?![\w:])"
    rf"|(?<![\w-])(?=[\d-]*[A-Fa-f])(?:{_HEX}{{2}}-){{5}}{_HEX}{{2}}(?![\w-])"
    rf"|(?<![\w:])(?=[\d:]*[A-Fa-f])(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}(?![\w:])"
    rf"|(?<![\w:]){_HEX}{{4,8}}:{_HEX}{{2}}:{_HEX}{{2}}\.[0-7](?!\w)"
)
# identifiers of a GPU, a session or a machine
IDENTIFIER: Final = re.compile(
    rf"(?:GPU-|MIG-)?(?<![A-Za-z0-9]){_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?![A-Za-z0-9])"
)

_ENDINGS: Final = """
    py pyc ipynb sh c cc cpp cxx cu cuh h hh hpp so dll json jsonl yaml yml toml txt log csv tsv bin pt pth ckpt
    safetensors npy npz parquet arrow onnx gz xz zst zip tar db sqlite sqlite3 env pem key cfg ini conf html md nsys-rep
    ncu-rep
"""
_FILE: Final = rf"\.(?:{'|'.join(_ENDINGS.split())})(?!\w)"
_ROOTS: Final = """
    Library Users Volumes afs app apps beegfs bin boot cache ceph cluster common content data dataset datasets dbfs dev
    disk efs etc export exports fast fsx global gpfs home homes kaggle lib lib64 local lustre media mnt models nas net
    network nfs nobackup nvme opt p pfs private proc project projects raid root run sbin scratch share shared shares
    software srv ssd storage sys teams tmp tools u users usr var vol volume work workdir workspace workspaces
"""
_ROOT: Final = f"(?:{'|'.join(_ROOTS.split())})"
# up to the end, across blanks if a slash or a file follows
_REST: Final = (
    rf"(?:[^{END}]|(?<=\\) )*"
    rf"(?:(?: (?!-)[^{END}/~=:()\[\]]+){{1,4}}/(?:[^{END}]|(?<=\\) )*)*"
    rf"(?:(?: [\w.+@()-]+){{1,3}}{_FILE})?"
)
PATH: Final = re.compile(
    # in quotes, with all blanks
    rf"(?<=\")(?:~[\w.-]*)?/[^\"/\n]+/[^\"\n]*(?=\")|(?<=')(?:~[\w.-]*)?/[^'/\n]+/[^'\n]*(?=')"
    # from the root of a file system or of a home, and of a server of files
    rf"|(?<![{_WORD}.)\]}}/~>\u0080-\U0010ffff])/(?:[^{END}/*][^{END}/]*/{_REST}|root\b|[\w.+@-]+{_FILE})"
    rf"|(?<![{_WORD}/~.>])~[\w.-]*/{_REST}"
    rf"|(?<![\w:/*])/{{2,}}[A-Za-z][\w.-]*/{_REST}"
    # after the end of a name (`layers[0]/mlp`): only usual folders, or names of files
    rf"|(?<![{_WORD}./~-])/{_ROOT}/(?=[^{END}]){_REST}"
    rf"|(?<=[)\]}}\u0080-\U0010ffff])(?:/[\w.+@-]{{1,255}}){{1,32}}{_FILE}"
    rf"|/(?:home|Users)/(?=[^{END}]){_REST}"
    # an option without a blank: -I/folder
    rf"|(?:(?<=[^\w-]-[A-Za-z])|(?<=\A-[A-Za-z]))/[A-Za-z.]{_REST}"
    # Windows
    r"|(?<![A-Za-z0-9_])[A-Za-z]:\\+(?:[^\\/:*?\"'<>|\r\n]+\\+)*[^\s\\/:*?\"'<>|]*"
    rf"|(?<![A-Za-z0-9_])[A-Za-z]:/{_REST}"
    rf"|(?<![\w\\])\\{{2,4}}[\w.-]+\\{{1,2}}[^{END}]*"
    # in JSON and URLs
    rf"|(?:\\{{1,2}}/[^{END}\\/]+){{2,}}"
    rf"|(?<![\w.%+~:-])[\w.%+~:-]*%(?:2[Ff]|5[Cc])[^{END}]*"
)
RELATIVE: Final = re.compile(rf"(?<![\w.+@/\\-])(?:[\w.+@-]+[/\\])+([\w.+@-]+{_FILE})")
# texts without any of these need no further checks
SUSPECT: Final = re.compile(
    r"[/\\@~%]|\d\.\d+\.\d|[0-9A-Fa-f]:[0-9A-Fa-f:]|[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}|\bip-\d"
    r"|\.(?:com|edu|gov|mil|org|local|localdomain|internal|intern|lan|corp)\b"
)

# the owner of a home folder in a path, also in JSON and URL encoding
_SLASH: Final = r"(?:\\{0,2}/|%2F)"
HOME: Final = re.compile(
    rf"(?:{_SLASH}(?:home|Users){_SLASH}|[A-Za-z](?::|%3A)(?:[\\/]+|%5C)Users(?:[\\/]+|%5C))([^{END}\\/:()%?*&]+)",
    re.IGNORECASE,
)
