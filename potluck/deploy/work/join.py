"""How a device joins a federation: by an invitation, with a key that it makes and that never leaves it."""

import json
import ssl
from pathlib import Path
from typing import TypedDict

import urllib3

from potluck.core import safe_files
from potluck.core.errors import ConfigError
from potluck.deploy.members import keyfiles, pki
from potluck.deploy.work.device_file import DeviceFile, Facts

INVITE = "invite.json"  # until it is certified


class Invitation(TypedDict):
    """What the file of an invitation says."""

    name: str
    address: str
    authority: str  # PEM
    secret: str
    federation: Facts


def prepare(invitation: Path, folder: Path | None, data: str) -> tuple[Path, DeviceFile]:
    """A device's folder from its invitation: a new key, and what it must know."""
    try:
        told: Invitation = json.loads(invitation.read_bytes())
        made = DeviceFile(told["name"], told["address"], data, told["federation"])
        authority, secret = told["authority"], told["secret"]
        made.find_form()
    except OSError as error:
        raise ConfigError(f"{invitation}: can't be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{invitation}: not an invitation of `potluck deploy invite`") from None
    at = Path(made.name) if folder is None else folder
    if (at / keyfiles.DEVICE).exists():
        raise ConfigError(f"{at}: a device has joined there already; name another folder")
    at.mkdir(parents=True, exist_ok=True)
    at.chmod(0o700)
    (at / keyfiles.CA).write_text(authority)
    request = pki.make_request(at, made.name)
    asked = {"name": made.name, "secret": secret, "request": request.decode()}
    pki.write_private(at / INVITE, json.dumps(asked).encode())
    made.write(at)
    return at, made


def complete(folder: Path, address: str) -> bool:
    """Have a device's key certified; False if its server isn't there. Once done, there is nothing to do."""
    if (folder / keyfiles.DEVICE).exists():
        return True
    if not (folder / INVITE).exists():
        raise ConfigError(f"{folder}: neither a certificate nor an invitation; join again")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(folder / keyfiles.CA)
    host, _, port = address.rpartition(":")
    http = urllib3.HTTPSConnectionPool(host, int(port), ssl_context=context, retries=False, timeout=10.0)
    try:
        answer = http.request("POST", "/v1/join", body=(folder / INVITE).read_bytes())
    except urllib3.exceptions.SSLError as error:
        raise ConfigError(f"{address}: not the server of this invitation ({error})") from None
    except urllib3.exceptions.HTTPError:
        return False
    finally:
        http.close()
    if answer.status != 200:
        raise ConfigError(f"{address}: {answer.data.decode(errors='replace')[:200]}")
    safe_files.write_file(folder, keyfiles.DEVICE, answer.data)
    (folder / INVITE).unlink()
    return True
