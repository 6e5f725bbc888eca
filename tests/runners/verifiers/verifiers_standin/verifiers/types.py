"""The record of an endpoint, with the fields and defaults of verifiers 0.2.1 that are set here."""

from dataclasses import dataclass


@dataclass
class ClientConfig:
    api_base_url: str
    api_key_var: str = "PRIME_API_KEY"
    max_retries: int = 10
    timeout: float = 3600.0
