"""The trainers that are supported, one file each: ``detect``, ``patch``, ``unpatch``, ``supported_versions``."""
