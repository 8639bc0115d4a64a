/* One call of the libjpeg API for one image, so that setjmp and longjmp never leave C.
 *
 * libjpeg's own memory source answers a read past the end with a made-up end-of-image marker and a
 * warning, which would let truncated files through. Here the same read is an error; all other
 * warnings (noise in the middle of the stream) are let through, as Pillow does. */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

enum outcome { DONE = 0, CORRUPT = 1, TRUNCATED = 2, TOO_MANY_SCANS = 3, OTHER_SIZE = 4 };

struct decode {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf escape;
  int outcome;
  int max_scans;
  char *message;
};

static struct decode *decode_of(j_common_ptr jpeg) { return (struct decode *)jpeg->client_data; }

static void leave(j_common_ptr jpeg, int outcome) {
  struct decode *decode = decode_of(jpeg);
  decode->outcome = outcome;
  longjmp(decode->escape, 1);
}

static void on_error(j_common_ptr jpeg) {
  jpeg->err->format_message(jpeg, decode_of(jpeg)->message);
  leave(jpeg, CORRUPT);
}

static void on_message(j_common_ptr jpeg, int level) { (void)jpeg, (void)level; }

static void on_progress(j_common_ptr jpeg) {
  if (((j_decompress_ptr)jpeg)->input_scan_number > decode_of(jpeg)->max_scans)
    leave(jpeg, TOO_MANY_SCANS);
}

static void nothing(j_decompress_ptr jpeg) { (void)jpeg; }

static boolean on_end_of_input(j_decompress_ptr jpeg) {
  leave((j_common_ptr)jpeg, TRUNCATED);
  return FALSE;
}

static void skip(j_decompress_ptr jpeg, long bytes) {
  struct jpeg_source_mgr *source = jpeg->src;
  if (bytes <= 0) return;
  if ((size_t)bytes > source->bytes_in_buffer) leave((j_common_ptr)jpeg, TRUNCATED);
  source->next_input_byte += bytes;
  source->bytes_in_buffer -= (size_t)bytes;
}

static void read_rows(j_decompress_ptr jpeg, size_t row_bytes, unsigned char *out) {
  enum { AT_ONCE = 8 };
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW rows[AT_ONCE];
    JDIMENSION count = jpeg->output_height - jpeg->output_scanline;
    if (count > AT_ONCE) count = AT_ONCE;
    for (JDIMENSION i = 0; i < count; i++) rows[i] = out + (jpeg->output_scanline + i) * row_bytes;
    jpeg_read_scanlines(jpeg, rows, count);
  }
}

/* The objects live in the caller, so that longjmp leaves their values defined. */
static void run(struct decode *decode, unsigned int width, unsigned int height, int channels,
                unsigned char *out) {
  j_decompress_ptr jpeg = &decode->jpeg;
  if (setjmp(decode->escape) != 0) return;
  jpeg_create_decompress(jpeg);
  jpeg->src = &decode->source;
  jpeg->progress = &decode->progress;
  jpeg_read_header(jpeg, TRUE);
  if (jpeg->image_width != width || jpeg->image_height != height ||
      (jpeg->num_components == 4) != (channels == 4))
    leave((j_common_ptr)jpeg, OTHER_SIZE);
  jpeg->out_color_space = channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(jpeg);
  read_rows(jpeg, (size_t)width * (size_t)channels, out);
  jpeg_finish_decompress(jpeg);
}

/* Decodes to RGB (channels == 3) or to CMYK as stored (channels == 4) into width * height * channels
 * bytes at out. Returns an outcome; message has room for JMSG_LENGTH_MAX bytes. */
int stoker_jpeg_decode(const unsigned char *bytes, size_t length, unsigned int width,
                       unsigned int height, int channels, int max_scans, unsigned char *out,
                       char *message) {
  struct decode decode;
  memset(&decode, 0, sizeof decode);
  decode.message = message;
  decode.max_scans = max_scans;
  decode.jpeg.client_data = &decode;
  decode.jpeg.err = jpeg_std_error(&decode.errors);
  decode.errors.error_exit = on_error;
  decode.errors.emit_message = on_message;
  decode.progress.progress_monitor = on_progress;
  decode.source.next_input_byte = bytes;
  decode.source.bytes_in_buffer = length;
  decode.source.init_source = nothing;
  decode.source.fill_input_buffer = on_end_of_input;
  decode.source.skip_input_data = skip;
  decode.source.resync_to_restart = jpeg_resync_to_restart;
  decode.source.term_source = nothing;
  run(&decode, width, height, channels, out);
  jpeg_destroy_decompress(&decode.jpeg);
  return decode.outcome;
}
