from kproxy.spark.pipeline.pipeline_errors import one_line


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
    assert one_line(ValueError(text)) == "Job aborted: kproxy.errors.KproxyError: the transaction is fenced"


def test_the_cause_in_a_function_of_the_driver() -> None:
    text = (
        "[STREAM_FAILED] Query p [id = 1, runId = 2] terminated with exception: An exception was raised by the Python "
        "Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "a.py", line 644, in _call_proxy\n'
        "    return_value = call()\n"
        "                   ^^^^^^\n"
        "kproxy.spark.pipeline.parquet_batches.OtherOwner: /out has the output of another checkpoint\n\nSQLSTATE: XXKST"
    )
    assert one_line(ValueError(text)) == (
        "An exception was raised by the Python Proxy: "
        "kproxy.spark.pipeline.parquet_batches.OtherOwner: /out has the output of another checkpoint"
    )


def test_the_cause_in_java_of_a_function_of_the_driver() -> None:
    text = (
        "[STREAM_FAILED] Query p [id = 1, runId = 2] terminated with exception: An exception was raised by the Python "
        "Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "a.py", line 644, in _call_proxy\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o261.parquet.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure\n"
        "\tat org.apache.spark.Foo\n"
        "Caused by: java.io.IOException: No space left on device\n"
        "\tat java.base/java.io.Foo\n"
    )
    assert one_line(ValueError(text)).endswith(
        "An error occurred while calling o261.parquet.: java.io.IOException: No space left on device"
    )


def test_none_is_without_words() -> None:
    assert one_line(TimeoutError()) == "TimeoutError"
    assert len(one_line(ValueError("x" * 5000))) < 700
