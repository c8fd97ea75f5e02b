"""The configuration file: its YAML, with every scalar as text."""

from pathlib import Path
from typing import Any

import yaml

from kproxy.config.sources import ConfigError


class _UniqueKeyLoader(yaml.BaseLoader):
    """All scalars stay text, so that YAML's own idea of ``off`` or ``1:30`` cannot change a value; no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_file(path: str) -> dict[str, Any]:
    """What the file holds, by its keys; ConfigError if it can't be read or is not a mapping."""
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise ConfigError([f"cannot read the configuration file {path}: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"the configuration file {path} is not UTF-8 text"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"the configuration file {path} is not valid YAML: {_on_one_line(error)}"]) from None
    if content in (None, ""):
        return {}
    if not isinstance(content, dict):
        raise ConfigError([f"the configuration file {path} must hold lines of 'option: value'"])
    return content


def _on_one_line(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}{problem or ' '.join(str(error).split())}"
