from kproxy.spark.pipeline.errors import one_line


def test_the_first_line_of_a_plan() -> None:
    text = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nselec"
    assert one_line(ValueError(text)) == "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. (line 1, pos 0)"


def test_the_cause_in_a_python_worker() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "w.py", line 1\n'
        "kproxy.errors.KproxyError: the transaction is fenced\n"
        "\n\tat org.apache.spark.Foo"
    )
    assert one_line(ValueError(text)) == "Job aborted.: kproxy.errors.KproxyError: the transaction is fenced"


def test_none_is_without_words() -> None:
    assert one_line(TimeoutError()) == "TimeoutError"
    assert len(one_line(ValueError("x" * 5000))) < 700
