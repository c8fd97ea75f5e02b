/* The innermost functions of kproxy's codec, compiled: those that each Produce request passes through.
 *
 * Each handles the usual case only. Whatever else it is given, it gives to the Python function that it stands for, with
 * the same arguments: that one decides, and raises. So no rule is written here that kproxy/codec does not say, and
 * nothing is changed before all that is to be read was found within its buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* kproxy.codec.accelerator asks for this number: another one means other functions. */
#define INTERFACE 3

enum {
    STAMP, NEW_BATCHES, WALK_FLEXIBLE, FLEXIBLE_PARTITIONS, WALK_RESPONSE, WALK_BATCHES, CUT_WHOLE,
    WRITE_UVARINT, WRITE_COMPACT_STRING, WRITE_LENGTH, WRITE_STRUCTS, WRITE_TAGS, FUNCTIONS
};
static PyObject *pure[FUNCTIONS];
static PyObject *partitions_name;

enum { HEADER_SIZE = 61, LOG_OVERHEAD = 12, STAMP_FROM = 43, STAMP_END = 57, CRC_AT = 17, MAGIC_AT = 16 };
enum { ATTRIBUTES_AT = 21, ATTRIBUTES_LOW_AT = 22, LAST_DELTA_AT = 23, RECORDS_AT = 57, CONTROL = 0x20 };
/* Versions of Produce: with varints and tags, and with ids in place of names of topics. */
enum { FIRST_FLEXIBLE = 9, FIRST_TOPIC_ID = 13, ID_BYTES = 16 };
/* Of its response: with the time of the append, the start of the log, and what is wrong with single records. */
enum { FIRST_APPEND_TIME = 2, FIRST_LOG_START = 5, FIRST_RECORD_ERRORS = 8 };
enum { MOST_PARTITIONS = 10000, MAX_INT16 = 0x7FFF, PREFIX = 4 };

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t get64(const uint8_t *at) { return (int64_t)((uint64_t)get32(at) << 32 | get32(at + 4)); }

static void put32(uint8_t *at, uint32_t value) {
    at[0] = value >> 24, at[1] = value >> 16, at[2] = value >> 8, at[3] = value;
}

static PyObject *ask_pure(int which, PyObject *const *args, Py_ssize_t count) {
    return PyObject_Vectorcall(pure[which], args, count, NULL);
}

/* -- CRC-32C: the difference of two checksums over bytes of which only the first ones differ */

/* By power of two: what so many zero bytes make of a register, by each four bits of it. */
static uint32_t after_zeros[31][8][16];

static uint32_t shift(uint32_t delta, int power) {
    uint32_t found = 0;
    for (int nibble = 0; nibble < 8; nibble++) found ^= after_zeros[power][nibble][delta >> 4 * nibble & 15];
    return found;
}

static uint32_t zero_byte(uint32_t crc) {
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    return crc;
}

static void fill_tables(void) {
    for (int power = 0; power < 31; power++)
        for (int nibble = 0; nibble < 8; nibble++)
            for (uint32_t bits = 0; bits < 16; bits++) {
                uint32_t crc = bits << 4 * nibble;
                after_zeros[power][nibble][bits] =
                    power ? shift(shift(crc, power - 1), power - 1) : zero_byte(crc);
            }
}

/* stamp(batch, producer_id, producer_epoch, base_sequence) */
static PyObject *stamp(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyLong_Check(args[1]) || !PyLong_Check(args[2]) || !PyLong_Check(args[3]))
        return ask_pure(STAMP, args, count);
    long long id = PyLong_AsLongLong(args[1]), epoch = PyLong_AsLongLong(args[2]), sequence = PyLong_AsLongLong(args[3]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE)) {
        PyErr_Clear();
        return ask_pure(STAMP, args, count);
    }
    uint8_t *batch = view.buf;
    int32_t length = view.len < HEADER_SIZE ? -1 : (int32_t)get32(batch + 8);
    if (epoch != (int16_t)epoch || sequence != (int32_t)sequence || length < HEADER_SIZE - LOG_OVERHEAD ||
        length > view.len - LOG_OVERHEAD || batch[MAGIC_AT] != 2) {
        PyBuffer_Release(&view);
        return ask_pure(STAMP, args, count);
    }
    uint8_t stamped[STAMP_END - STAMP_FROM];
    put32(stamped, (uint32_t)((uint64_t)id >> 32));
    put32(stamped + 4, (uint32_t)id);
    stamped[8] = (uint8_t)(epoch >> 8), stamped[9] = (uint8_t)epoch;
    put32(stamped + 10, (uint32_t)sequence);
    uint32_t delta = 0;
    for (int at = 0; at < STAMP_END - STAMP_FROM; at++) {
        delta = shift(delta ^ batch[STAMP_FROM + at] ^ stamped[at], 0);
        batch[STAMP_FROM + at] = stamped[at];
    }
    uint32_t left = (uint32_t)(length - (STAMP_END - LOG_OVERHEAD));
    for (int power = 0; left; power++, left >>= 1)
        if (left & 1) delta = shift(delta, power);
    put32(batch + CRC_AT, get32(batch + CRC_AT) ^ delta);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

/* The records of a batch of [start, end) as new_batches counts them; 0 if it has to be looked at more closely. */
static int32_t new_records(const Py_buffer *frame, PyObject *place) {
    if (!PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 3) return 0;
    PyObject *from = PyTuple_GET_ITEM(place, 1), *to = PyTuple_GET_ITEM(place, 2);
    if (!PyLong_Check(from) || !PyLong_Check(to)) return 0;
    Py_ssize_t start = PyLong_AsSsize_t(from), end = PyLong_AsSsize_t(to);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    if (start < 0 || end > frame->len || end - start < HEADER_SIZE) return 0;
    const uint8_t *batch = (const uint8_t *)frame->buf + start;
    for (int at = STAMP_FROM; at < STAMP_END; at++)
        if (batch[at] != 0xFF) return 0;
    if (batch[MAGIC_AT] != 2 || batch[ATTRIBUTES_LOW_AT] & CONTROL || (int32_t)get32(batch + 8) != end - start - LOG_OVERHEAD) return 0;
    int32_t records = (int32_t)get32(batch + RECORDS_AT);
    return records > 0 && (int64_t)(int32_t)get32(batch + LAST_DELTA_AT) + 1 == records ? records : 0;
}

/* new_batches(frame, layout) */
static PyObject *new_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer frame;
    if (count != 2 || PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return ask_pure(NEW_BATCHES, args, count);
    }
    PyObject *counts = NULL, *places = PyObject_GetAttr(args[1], partitions_name);
    if (places != NULL && PyList_Check(places)) {
        counts = PyList_New(PyList_GET_SIZE(places));
        for (Py_ssize_t at = 0; counts != NULL && at < PyList_GET_SIZE(places); at++) {
            int32_t records = new_records(&frame, PyList_GET_ITEM(places, at));
            PyObject *number = records ? PyLong_FromLong(records) : NULL;
            if (number == NULL)
                Py_CLEAR(counts);
            else
                PyList_SET_ITEM(counts, at, number);
        }
    }
    PyErr_Clear();
    Py_XDECREF(places);
    PyBuffer_Release(&frame);
    return counts != NULL ? counts : ask_pure(NEW_BATCHES, args, count);
}

/* A tuple (topic, index), of which the topic is not taken over. */
static PyObject *partition_of(PyObject *topic, int32_t index) {
    PyObject *number = PyLong_FromLong(index), *key = NULL;
    if (number != NULL) key = PyTuple_Pack(2, topic, number);
    Py_XDECREF(number);
    return key;
}

/* A PartitionData (a tuple of three) at the end of a list; 0 if that failed. */
static int add_place(PyObject *places, PyTypeObject *type, PyObject *topic, int32_t index, Py_ssize_t start, Py_ssize_t end) {
    PyObject *key = partition_of(topic, index), *from = PyLong_FromSsize_t(start), *to = PyLong_FromSsize_t(end);
    PyObject *place = key != NULL && from != NULL && to != NULL ? type->tp_alloc(type, 3) : NULL;
    if (place == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(from);
        Py_XDECREF(to);
        return 0;
    }
    PyTuple_SET_ITEM(place, 0, key);
    PyTuple_SET_ITEM(place, 1, from);
    PyTuple_SET_ITEM(place, 2, to);
    int added = !PyList_Append(places, place);
    Py_DECREF(place);
    return added;
}

/* The name of a topic as the requests before had it; a new one, which has to be UTF-8 if it is no id, where none are
 * given. NULL if it is another. */
static PyObject *topic_named(const uint8_t *bytes, Py_ssize_t size, PyObject *topics, int is_id) {
    PyObject *name = PyBytes_FromStringAndSize((const char *)bytes, size);
    if (name == NULL) return NULL;
    if (topics != NULL) {
        PyObject *known = PyDict_GetItemWithError(topics, name);
        Py_XINCREF(known);
        Py_DECREF(name);
        return known;
    }
    PyObject *text = is_id ? NULL : PyUnicode_DecodeUTF8((const char *)bytes, size, NULL);
    if (!is_id && text == NULL) Py_CLEAR(name);
    Py_XDECREF(text);
    return name;
}

/* The partitions of one topic; where they end, or -1 if they are not usual. */
static Py_ssize_t walk_places(const uint8_t *frame, Py_ssize_t end, Py_ssize_t pos, PyObject *topic, PyTypeObject *type,
                              PyObject *places) {
    for (int more = frame[pos++] - 1; more != 0; more--) {
        if (more < 0 || more > 0x7E || end - pos < 7) return -1;
        int32_t index = (int32_t)get32(frame + pos);
        const uint8_t *varint = frame + pos + 4;
        Py_ssize_t size = varint[0] & 0x7F;
        pos += 5;
        if (varint[0] & 0x80) size |= (varint[1] & 0x7F) << 7, pos++;
        if (varint[0] & varint[1] & 0x80) size |= varint[2] << 14, pos++;
        if (varint[0] & varint[1] & varint[2] & 0x80 || !size || size > end - pos) return -1;
        if (frame[pos + size - 1] || !add_place(places, type, topic, index, pos, pos + size - 1)) return -1;
        pos += size;
    }
    return pos;
}

/* The partitions of a request; 0 if it is not of the shape, or does not end with its frame. ``topics``: see above. */
static int walk_topics(const uint8_t *frame, Py_ssize_t end, Py_ssize_t pos, long size_before, PyObject *topics,
                       PyTypeObject *type, PyObject *places) {
    if (pos < 0 || pos >= end) return 0;
    for (int left = frame[pos++] - 1; left != 0; left--) {
        if (left < 0 || left > 0x7E || pos + 1 >= end) return 0;
        if (!size_before && frame[pos] & 0x80) return 0;
        Py_ssize_t size = size_before ? size_before : frame[pos++] - 1;
        if (size < 0 || size >= end - pos) return 0;
        PyObject *topic = topic_named(frame + pos, size, topics, size_before != 0);
        if (topic == NULL) return 0;
        pos = walk_places(frame, end, pos + size, topic, type, places);
        Py_DECREF(topic);
        if (pos < 0 || pos >= end || frame[pos++]) return 0;
    }
    return pos + 1 == end && !frame[pos];
}

/* walk_flexible(frame, pos, name_bytes, topics, made) */
static PyObject *walk_flexible(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 5 || !PyLong_Check(args[1]) || !PyLong_Check(args[2]) || !PyDict_Check(args[3]) ||
        !PyType_Check(args[4]) || !PyType_IsSubtype((PyTypeObject *)args[4], &PyTuple_Type))
        return ask_pure(WALK_FLEXIBLE, args, count);
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]);
    long size = PyLong_AsLong(args[2]);
    Py_buffer frame;
    if (PyErr_Occurred() || size < 0 || PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return ask_pure(WALK_FLEXIBLE, args, count);
    }
    PyObject *places = PyList_New(0);
    if (places == NULL ||
        !walk_topics(frame.buf, frame.len, pos, size, args[3], (PyTypeObject *)args[4], places))
        Py_CLEAR(places);
    PyErr_Clear();
    PyBuffer_Release(&frame);
    return places != NULL ? places : ask_pure(WALK_FLEXIBLE, args, count);
}

/* flexible_partitions(frame, pos, version, made) */
static PyObject *flexible_partitions(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyLong_Check(args[1]) || !PyLong_Check(args[2]) || !PyType_Check(args[3]) ||
        !PyType_IsSubtype((PyTypeObject *)args[3], &PyTuple_Type))
        return ask_pure(FLEXIBLE_PARTITIONS, args, count);
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]);
    long version = PyLong_AsLong(args[2]);
    Py_buffer frame;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return ask_pure(FLEXIBLE_PARTITIONS, args, count);
    }
    long size = version >= FIRST_TOPIC_ID ? ID_BYTES : 0;
    PyObject *places = PyList_New(0);
    if (places == NULL || !walk_topics(frame.buf, frame.len, pos, size, NULL, (PyTypeObject *)args[3], places) ||
        PyList_GET_SIZE(places) > MOST_PARTITIONS)
        Py_CLEAR(places);
    PyErr_Clear();
    PyBuffer_Release(&frame);
    return places != NULL ? places : ask_pure(FLEXIBLE_PARTITIONS, args, count);
}

/* One result in a dictionary, by topic and index; 0 if that failed. */
static int add_result(PyObject *results, PyObject *topic, const uint8_t *row) {
    PyObject *key = partition_of(topic, (int32_t)get32(row));
    int16_t error = (int16_t)(row[4] << 8 | row[5]);
    PyObject *result = Py_BuildValue("hLL", error, (long long)get64(row + 6), (long long)get64(row + 14));
    int added = key != NULL && result != NULL && !PyDict_SetItem(results, key, result);
    Py_XDECREF(key);
    Py_XDECREF(result);
    return added;
}

/* The results of a response with short names and few partitions, and without messages or tags. */
static int walk_results(const uint8_t *frame, Py_ssize_t end, int names_by_id, PyObject *results) {
    enum { ROW = 33, BODY = 10 };
    if (end < BODY || frame[8] || !frame[9] || frame[9] & 0x80) return 0;
    Py_ssize_t pos = BODY;
    for (int left = frame[9] - 1; left; left--) {
        int size = ID_BYTES;
        if (!names_by_id) {
            if (pos >= end || !frame[pos] || frame[pos] & 0x80) return 0;
            size = frame[pos++] - 1;
        }
        if (size >= end - pos) return 0;
        int rows = frame[pos + size] - 1;
        if (rows < 0 || rows > 0x7E || (Py_ssize_t)rows * ROW >= end - pos - size - 1) return 0;
        PyObject *topic = PyBytes_FromStringAndSize((const char *)frame + pos, size);
        pos += size + 1;
        int added = topic != NULL;
        for (; added && rows; rows--, pos += ROW)
            added = !memcmp(frame + pos + 30, "\1\0\0", 3) && add_result(results, topic, frame + pos);
        Py_XDECREF(topic);
        if (!added || frame[pos++]) return 0;
    }
    return 1;
}

/* The same of a version before varints. */
static int walk_plain_results(const uint8_t *frame, Py_ssize_t end, long version, PyObject *results) {
    enum { COUNT_AT = 8, ROW = 22, LOG_START = 8 };
    static const uint8_t nothing_more[] = {0, 0, 0, 0, 0xFF, 0xFF};
    Py_ssize_t row = ROW, pos = COUNT_AT + 4;
    if (version >= FIRST_LOG_START) row += LOG_START;
    if (version >= FIRST_RECORD_ERRORS) row += sizeof nothing_more;
    if (end < pos || get32(frame + COUNT_AT) > 0x7E) return 0;
    for (uint32_t left = get32(frame + COUNT_AT); left; left--) {
        if (end - pos < 2) return 0;
        Py_ssize_t size = (Py_ssize_t)frame[pos] << 8 | frame[pos + 1];
        if (size > MAX_INT16 || size + 6 > end - pos) return 0;
        uint32_t rows = get32(frame + pos + 2 + size);
        PyObject *topic = PyBytes_FromStringAndSize((const char *)frame + pos + 2, size);
        pos += size + 6;
        int added = topic != NULL && rows <= 0x7E && (Py_ssize_t)rows * row <= end - pos;
        for (; added && rows; rows--, pos += row)
            added = (version < FIRST_RECORD_ERRORS ||
                     !memcmp(frame + pos + row - sizeof nothing_more, nothing_more, sizeof nothing_more)) &&
                    add_result(results, topic, frame + pos);
        Py_XDECREF(topic);
        if (!added) return 0;
    }
    return 1;
}

/* walk_response(frame, version) */
static PyObject *walk_response(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    long version = count == 2 && PyLong_Check(args[1]) ? PyLong_AsLong(args[1]) : -1;
    Py_buffer frame;
    if (version < FIRST_APPEND_TIME || version > FIRST_TOPIC_ID || PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return ask_pure(WALK_RESPONSE, args, count);
    }
    PyObject *results = PyDict_New();
    if (results == NULL || !(version < FIRST_FLEXIBLE
                                 ? walk_plain_results(frame.buf, frame.len, version, results)
                                 : walk_results(frame.buf, frame.len, version >= FIRST_TOPIC_ID, results)))
        Py_CLEAR(results);
    PyErr_Clear();
    PyBuffer_Release(&frame);
    return results != NULL ? results : ask_pure(WALK_RESPONSE, args, count);
}

/* walk_batches(record_set, special, producer_ids_below) */
static PyObject *walk_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    int above_all = 0;
    long special = count == 3 && PyLong_Check(args[1]) ? PyLong_AsLong(args[1]) : -1;
    long long below = count == 3 && PyLong_Check(args[2]) ? PyLong_AsLongLongAndOverflow(args[2], &above_all) : -1;
    Py_buffer view;
    if (PyErr_Occurred() || special < 0 || special > 0x7FFF || (below < 0 && above_all <= 0) ||
        PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return ask_pure(WALK_BATCHES, args, count);
    }
    Py_ssize_t before = -1, last = -1, pos = 0;
    int usual = 1;
    while (usual && pos <= view.len - HEADER_SIZE) {
        const uint8_t *batch = (const uint8_t *)view.buf + pos;
        int32_t length = (int32_t)get32(batch + 8);
        usual = batch[MAGIC_AT] == 2 && !((batch[ATTRIBUTES_AT] << 8 | batch[ATTRIBUTES_AT + 1]) & special) &&
                (above_all > 0 || get64(batch + STAMP_FROM) < below) && (int32_t)get32(batch + RECORDS_AT) > 0 &&
                length >= HEADER_SIZE - LOG_OVERHEAD;
        before = last, last = pos;
        pos += LOG_OVERHEAD + (Py_ssize_t)length;
    }
    PyBuffer_Release(&view);
    if (!usual) Py_RETURN_NONE;
    return Py_BuildValue("nnn", before, last, pos);
}

/* -- frames */

/* cut_whole(data, longest, frames) */
static PyObject *cut_whole(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyLong_Check(args[1]) || !PyList_CheckExact(args[2])) return ask_pure(CUT_WHOLE, args, count);
    Py_ssize_t longest = PyLong_AsSsize_t(args[1]), pos = 0;
    Py_buffer data;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return ask_pure(CUT_WHOLE, args, count);
    }
    int added = 1;
    while (added && data.len - pos >= PREFIX) {
        const uint8_t *start = (const uint8_t *)data.buf + pos;
        int32_t length = (int32_t)get32(start);
        if (length < 0 || length > longest || length > data.len - pos - PREFIX) break;
        PyObject *frame = PyByteArray_FromStringAndSize((const char *)start, (Py_ssize_t)length + PREFIX);
        added = frame != NULL && !PyList_Append(args[2], frame);
        Py_XDECREF(frame);
        pos += PREFIX + (Py_ssize_t)length;
    }
    PyBuffer_Release(&data);
    return added ? PyLong_FromSsize_t(pos) : NULL;
}

/* -- writers of the generated codec */

enum { VARINT_BYTES = 5 };

/* The bytes of an unsigned varint, in ``varint``; how many they are. */
static int varint_of(uint32_t value, char *varint) {
    int size = 0;
    for (; value > 0x7F; value >>= 7) varint[size++] = (char)(value | 0x80);
    varint[size++] = (char)value;
    return size;
}

/* Two pieces at the end of a bytearray; 0 if that failed, and nothing is changed. */
static int append(PyObject *out, const char *one, Py_ssize_t one_size, const char *two, Py_ssize_t two_size) {
    Py_ssize_t size = PyByteArray_GET_SIZE(out);
    if (PyByteArray_Resize(out, size + one_size + two_size)) {
        PyErr_Clear();
        return 0;
    }
    char *end = PyByteArray_AS_STRING(out) + size;
    memcpy(end, one, one_size);
    if (two_size) memcpy(end + one_size, two, two_size);
    return 1;
}

/* write_uvarint(out, value) */
static PyObject *write_uvarint(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    char varint[VARINT_BYTES];
    long long value = count == 2 && PyLong_Check(args[1]) ? PyLong_AsLongLong(args[1]) : -1;
    PyErr_Clear();
    if (value < 0 || value > UINT32_MAX || !PyByteArray_CheckExact(args[0]) ||
        !append(args[0], varint, varint_of((uint32_t)value, varint), NULL, 0))
        return ask_pure(WRITE_UVARINT, args, count);
    Py_RETURN_NONE;
}

/* write_compact_string(out, value) */
static PyObject *write_compact_string(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    char varint[VARINT_BYTES];
    Py_ssize_t size = -1;
    const char *text = NULL;
    if (count == 2 && PyByteArray_CheckExact(args[0]) && PyUnicode_CheckExact(args[1]))
        text = PyUnicode_AsUTF8AndSize(args[1], &size);
    if (text == NULL || size > MAX_INT16 ||
        !append(args[0], varint, varint_of((uint32_t)size + 1, varint), text, size)) {
        PyErr_Clear();
        return ask_pure(WRITE_COMPACT_STRING, args, count);
    }
    Py_RETURN_NONE;
}

/* write_length(out, value, compact, nullable) */
static PyObject *write_length(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    char varint[VARINT_BYTES];
    if (count != 4 || !PyByteArray_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || args[2] != Py_True ||
        PyList_GET_SIZE(args[1]) >= UINT32_MAX ||
        !append(args[0], varint, varint_of((uint32_t)PyList_GET_SIZE(args[1]) + 1, varint), NULL, 0))
        return ask_pure(WRITE_LENGTH, args, count);
    Py_INCREF(args[1]);
    return args[1];
}

/* write_structs(out, version, items, write) */
static PyObject *write_structs(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyList_CheckExact(args[2])) return ask_pure(WRITE_STRUCTS, args, count);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(args[2]); at++) {
        PyObject *item = PyList_GET_ITEM(args[2], at);
        Py_INCREF(item);
        PyObject *passed[] = {args[0], item, args[1]};
        PyObject *nothing = PyObject_Vectorcall(args[3], passed, 3, NULL);
        Py_DECREF(item);
        if (nothing == NULL) return NULL;
        Py_DECREF(nothing);
    }
    Py_RETURN_NONE;
}

/* write_tags(out, tags) */
static PyObject *write_tags(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyByteArray_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || PyDict_GET_SIZE(args[1]) ||
        !append(args[0], "", 1, NULL, 0))
        return ask_pure(WRITE_TAGS, args, count);
    Py_RETURN_NONE;
}

#define COMPILED(function) {#function, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}

static PyMethodDef functions[FUNCTIONS + 1] = {
    [STAMP] = COMPILED(stamp),
    [NEW_BATCHES] = COMPILED(new_batches),
    [WALK_FLEXIBLE] = COMPILED(walk_flexible),
    [FLEXIBLE_PARTITIONS] = COMPILED(flexible_partitions),
    [WALK_RESPONSE] = COMPILED(walk_response),
    [WALK_BATCHES] = COMPILED(walk_batches),
    [CUT_WHOLE] = COMPILED(cut_whole),
    [WRITE_UVARINT] = COMPILED(write_uvarint),
    [WRITE_COMPACT_STRING] = COMPILED(write_compact_string),
    [WRITE_LENGTH] = COMPILED(write_length),
    [WRITE_STRUCTS] = COMPILED(write_structs),
    [WRITE_TAGS] = COMPILED(write_tags),
};

/* compiled(function): the compiled form of a Python function, which gets what is not usual. */
static PyObject *compiled(PyObject *module, PyObject *function) {
    PyObject *name = PyObject_GetAttrString(function, "__name__");
    if (name == NULL) return NULL;
    for (int which = 0; which < FUNCTIONS; which++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, functions[which].ml_name) == 0) {
            Py_DECREF(name);
            Py_INCREF(function);
            Py_XSETREF(pure[which], function);
            return PyCFunction_New(&functions[which], NULL);
        }
    PyErr_Format(PyExc_LookupError, "no compiled form of %U", name);
    Py_DECREF(name);
    return NULL;
}

static PyMethodDef methods[] = {{"compiled", compiled, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "kproxy_accelerator", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit_kproxy_accelerator(void) {
    fill_tables();
    partitions_name = PyUnicode_InternFromString("partitions");
    PyObject *module = partitions_name != NULL ? PyModule_Create(&definition) : NULL;
    if (module != NULL && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE)) Py_CLEAR(module);
    return module;
}
