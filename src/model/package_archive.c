/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The archive: a zip whose bytes follow from the content alone.
 *
 * Writing is ours. A library's zip writer puts in the time, the time zone's idea of it, extra fields and data descriptors
 * that change with its version, and the deployment of tomorrow must have the bytes of today. So: the manifest first, then
 * the entries in byte order, stored, dated 1980-01-01, with nothing optional. Any unzip can open it.
 *
 * Reading is the library's (it knows what the world writes), with zip as the only format, and everything in the result held
 * against the manifest: an entry that is missing, altered or not listed refuses the archive.
 */
#include <archive.h>
#include <archive_entry.h>

#include "base/alloc.h"
#include "model/package_private.h"

#define ZIP_LOCAL   0x04034b50u
#define ZIP_CENTRAL 0x02014b50u
#define ZIP_END     0x06054b50u
#define ZIP_VERSION 10              /* stored entries need no more */
#define ZIP_MADE_BY ((3 << 8) | 20) /* by Unix, so that the modes below count */
#define ZIP_DATE    0x0021          /* 1980-01-01 */
#define ZIP_MODE    (UINT32_C(0100644) << 16)

static void add_le16(struct buf *out, unsigned v)
{
	buf_add_byte(out, (char)(v & 0xff));
	buf_add_byte(out, (char)(v >> 8 & 0xff));
}

static void add_le32(struct buf *out, uint32_t v)
{
	add_le16(out, v & 0xffff);
	add_le16(out, v >> 16);
}

/* The CRC-32 of zip, four bits at a time. */
static uint32_t crc32_of(struct str bytes)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < bytes.len; i++) {
		crc ^= (unsigned char)bytes.ptr[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

/* The fields that local and central records share, from "version needed" to the lengths. */
static void add_common(struct buf *out, const struct package_entry *entry, uint32_t crc)
{
	add_le16(out, ZIP_VERSION);
	add_le16(out, 0); /* flags: sizes are known, names are ASCII */
	add_le16(out, 0); /* stored */
	add_le16(out, 0); /* time */
	add_le16(out, ZIP_DATE);
	add_le32(out, crc);
	add_le32(out, (uint32_t)entry->bytes.len);
	add_le32(out, (uint32_t)entry->bytes.len);
	add_le16(out, (unsigned)entry->path.len);
	add_le16(out, 0); /* extra */
}

static void add_entry(struct buf *out, struct buf *central, const struct package_entry *entry,
		      size_t origin)
{
	uint32_t crc = crc32_of(entry->bytes);
	size_t offset = out->len - origin;

	add_le32(out, ZIP_LOCAL);
	add_common(out, entry, crc);
	buf_add_str(out, entry->path);
	buf_add_str(out, entry->bytes);

	add_le32(central, ZIP_CENTRAL);
	add_le16(central, ZIP_MADE_BY);
	add_common(central, entry, crc);
	add_le16(central, 0); /* comment */
	add_le16(central, 0); /* disk */
	add_le16(central, 0); /* internal attributes */
	add_le32(central, ZIP_MODE);
	add_le32(central, (uint32_t)offset);
	buf_add_str(central, entry->path);
}

void package_write_archive(const struct package *package, struct buf *out)
{
	const struct package_entry manifest = {STR(PACKAGE_MANIFEST), package->manifest};
	struct buf central = BUF_INIT;
	size_t origin = out->len;
	unsigned count = package->entry_count + 1;

	add_entry(out, &central, &manifest, origin);
	for (uint32_t i = 0; i < package->entry_count; i++)
		add_entry(out, &central, &package->entries[i], origin);

	size_t start = out->len - origin;

	/* The limits on packages keep all of this within what zip can say without its 64-bit records. */
	assert(count < 0xffff && start + central.len < UINT32_MAX);
	buf_add_str(out, buf_str(&central));
	add_le32(out, ZIP_END);
	add_le16(out, 0);
	add_le16(out, 0);
	add_le16(out, count);
	add_le16(out, count);
	add_le32(out, (uint32_t)central.len);
	add_le32(out, (uint32_t)start);
	add_le16(out, 0);
	buf_done(&central);
}

struct unpack {
	struct archive *archive;
	const struct package_limits *limits;
	struct package *package;
	struct findings *findings;
	struct buf manifest;
	bool manifest_seen;
	uint32_t seen;
};

static bool refuse(struct unpack *unpack, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Always false. */
static bool refuse(struct unpack *unpack, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	text = arena_vprintf(&unpack->package->arena, fmt, ap);
	va_end(ap);
	finding_add(unpack->findings, NULL, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID, "%s", text);
	return false;
}

/* Not more than the limit, whatever the header says. */
static bool read_bytes(struct unpack *unpack, uint64_t max, struct buf *out)
{
	for (;;) {
		char *at = buf_reserve(out, 65536);
		la_ssize_t got = archive_read_data(unpack->archive, at, 65536);

		if (got == 0)
			return true;
		if (got == ARCHIVE_RETRY)
			continue;
		if (got < 0)
			return refuse(unpack, "the archive is damaged");
		out->len += (size_t)got;
		if (out->len > max)
			return refuse(unpack, "an entry has more than %llu bytes",
				      (unsigned long long)max);
	}
}

static bool read_entry(struct unpack *unpack, struct archive_entry *entry)
{
	const char *name = archive_entry_pathname_utf8(entry);
	struct buf bytes = BUF_INIT;
	bool ok;

	if (!name)
		name = archive_entry_pathname(entry);
	if (!name || archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
	    archive_entry_symlink(entry) || archive_entry_is_encrypted(entry))
		return refuse(unpack, "an entry of the archive is no plain file");
	if (++unpack->seen > unpack->limits->max_entries + 1)
		return refuse(unpack, "the archive has more than %u entries",
			      unpack->limits->max_entries);
	if (strcmp(name, PACKAGE_MANIFEST) == 0) {
		if (unpack->manifest_seen)
			return refuse(unpack, "entry " PACKAGE_MANIFEST ": stands there twice");
		unpack->manifest_seen = true;
		return read_bytes(unpack, (uint64_t)unpack->limits->max_entries * 320,
				  &unpack->manifest);
	}
	if (!package_path_check(str_of(name), unpack->limits, NULL, unpack->findings))
		return false;
	/* The name is the entry's own, and reading its data leaves it alone. */
	ok = read_bytes(unpack, unpack->limits->max_entry_bytes, &bytes) &&
	     package_add(unpack->package, str_of(name), buf_str(&bytes), unpack->limits, NULL,
			 unpack->findings);
	buf_done(&bytes);
	return ok;
}

static bool read_entries(struct unpack *unpack, struct str bytes)
{
	struct archive_entry *entry;
	int status;

	archive_read_support_format_zip_seekable(unpack->archive);
	if (archive_read_open_memory(unpack->archive, bytes.ptr, bytes.len) != ARCHIVE_OK)
		return refuse(unpack, "this is no zip archive");
	while ((status = archive_read_next_header(unpack->archive, &entry)) == ARCHIVE_OK)
		if (!read_entry(unpack, entry))
			return false;
	if (status != ARCHIVE_EOF)
		return refuse(unpack,
			      unpack->seen ? "the archive is damaged" : "this is no zip archive");
	return true;
}

/* Splits off the first line, without its end. */
static struct str next_line(struct str *rest)
{
	ptrdiff_t end = str_find(*rest, '\n');
	struct str line = {rest->ptr, end < 0 ? rest->len : (size_t)end};
	size_t used = end < 0 ? rest->len : (size_t)end + 1;

	rest->ptr += used;
	rest->len -= used;
	return line;
}

/* What stands behind the second pair of blanks. */
static struct str line_path(struct str line)
{
	for (int i = 0; i < 2; i++) {
		ptrdiff_t blank = str_find(line, ' ');

		if (blank < 0 || (size_t)blank + 2 > line.len)
			return STR_NONE;
		line.ptr += blank + 2;
		line.len -= (size_t)blank + 2;
	}
	return line;
}

/* Names the entries that differ from the manifest that came with them. */
static void compare_manifest(struct unpack *unpack)
{
	struct map listed;
	struct str rest = buf_str(&unpack->manifest);
	const struct package *package = unpack->package;

	map_init(&listed);
	while (rest.len) {
		struct str line = next_line(&rest);
		struct str path = line_path(line);

		if (!path.ptr)
			refuse(unpack, PACKAGE_MANIFEST ": a line is malformed");
		else if (!package_entry_find(package, path))
			refuse(unpack, PACKAGE_MANIFEST ": an entry that it lists is missing");
		else if (map_put(&listed, path, (void *)line.ptr))
			refuse(unpack, PACKAGE_MANIFEST ": %.*s is listed twice", STR_ARG(path));
	}
	for (uint32_t i = 0; i < package->entry_count; i++) {
		const struct package_entry *entry = &package->entries[i];
		const char *line = map_get(&listed, entry->path);
		struct buf want = BUF_INIT;

		package_manifest_line(entry, &want);
		if (!line)
			refuse(unpack, "entry %.*s: not in the " PACKAGE_MANIFEST,
			       STR_ARG(entry->path));
		else if ((size_t)(unpack->manifest.data + unpack->manifest.len - line) < want.len ||
			 memcmp(line, want.data, want.len) != 0)
			refuse(unpack,
			       "entry %.*s: altered, it is not what the " PACKAGE_MANIFEST " says",
			       STR_ARG(entry->path));
		buf_done(&want);
	}
	map_done(&listed);
}

enum result package_read_archive(struct str bytes, const struct package_limits *limits,
				 struct package **out, struct findings *findings)
{
	struct unpack unpack = {
		.archive = archive_read_new(),
		.limits = limits,
		.package = package_new(),
		.findings = findings,
	};
	unsigned errors = findings->errors;

	if (!unpack.archive)
		mem_exhausted(0);
	if (read_entries(&unpack, bytes)) {
		package_finish(unpack.package, NULL, findings);
		if (!unpack.manifest_seen)
			refuse(&unpack, PACKAGE_MANIFEST " is missing");
		else if (!str_equal(buf_str(&unpack.manifest), unpack.package->manifest)) {
			compare_manifest(&unpack);
			if (findings->errors == errors)
				refuse(&unpack,
				       PACKAGE_MANIFEST ": the order is not that of the paths");
		}
	}
	archive_read_free(unpack.archive);
	buf_done(&unpack.manifest);
	if (findings->errors != errors) {
		package_free(&unpack.package);
		return RESULT_REJECT;
	}
	*out = unpack.package;
	return RESULT_OK;
}
