"""Names of the files that hold keys and certificates, in a federation's folder and in a device's."""

CA, CA_KEY = "ca.crt", "ca.key"
SERVER, SERVER_KEY = "server.crt", "server.key"
DEVICE, DEVICE_KEY = "device.crt", "device.key"
