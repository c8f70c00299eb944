"""What a fork server imports, so that the proxies forked from it begin with warm tokenizers."""

from tests.proxy.speakers import warm

warm()
