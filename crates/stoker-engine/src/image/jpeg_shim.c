/* Calls of the libjpeg API, one image at a time, so that setjmp and longjmp never leave C.
 *
 * An image is started, its rows are read as they are asked for, and it is ended. libjpeg's own memory
 * source answers a read past the end with a made-up end-of-image marker and a warning, which would let
 * truncated files through. Here the same read is an error; all other warnings (noise in the middle of
 * the stream) are let through, as Pillow does. */

#include <stdlib.h>
#include <string.h>

#include "jpeg_shim.h"

enum outcome { DONE = 0, CORRUPT = 1, TRUNCATED = 2, TOO_MANY_SCANS = 3, OTHER_SIZE = 4 };

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

static void start(struct decode *decode, unsigned int width, unsigned int height, int channels,
                  unsigned int shrink, int quick) {
  j_decompress_ptr jpeg = &decode->jpeg;
  jpeg_create_decompress(jpeg);
  jpeg->src = &decode->source;
  jpeg->progress = &decode->progress;
  jpeg_read_header(jpeg, TRUE);
  jpeg->scale_num = 1;
  jpeg->scale_denom = shrink;
  jpeg->out_color_space = channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(jpeg);
  if (jpeg->output_width != width || jpeg->output_height != height ||
      (jpeg->num_components == 4) != (channels == 4))
    leave((j_common_ptr)jpeg, OTHER_SIZE);
  jpeg_start_decompress(jpeg);
  if (quick) stoker_jpeg_quicken(decode);
}

/* Memory for one image after the other, or null. */
struct decode *stoker_jpeg_new(void) { return calloc(1, sizeof(struct decode)); }

void stoker_jpeg_free(struct decode *decode) { free(decode); }

/* Starts an image that is width * height pixels when it is shrunk by 1, 2, 4 or 8, as RGB (channels ==
 * 3) or CMYK as stored (channels == 4); quick is whether our entropy decoder may be used. bytes stay
 * until it is ended. Returns an outcome. */
int stoker_jpeg_start(struct decode *decode, const unsigned char *bytes, size_t length,
                      unsigned int width, unsigned int height, int channels, unsigned int shrink,
                      int quick, int max_scans) {
  memset(&decode->jpeg, 0, sizeof decode->jpeg);
  memset(&decode->source, 0, sizeof decode->source);
  memset(&decode->progress, 0, sizeof decode->progress);
  decode->outcome = DONE;
  decode->max_scans = max_scans;
  decode->jpeg.client_data = decode;
  decode->jpeg.err = jpeg_std_error(&decode->errors);
  decode->errors.error_exit = on_error;
  decode->errors.emit_message = on_message;
  decode->progress.progress_monitor = on_progress;
  decode->source.next_input_byte = bytes;
  decode->source.bytes_in_buffer = length;
  decode->source.init_source = nothing;
  decode->source.fill_input_buffer = on_end_of_input;
  decode->source.skip_input_data = skip;
  decode->source.resync_to_restart = jpeg_resync_to_restart;
  decode->source.term_source = nothing;
  if (setjmp(decode->escape) == 0) start(decode, width, height, channels, shrink, quick);
  return decode->outcome;
}

/* Reads the next rows, which the image has, to out, stride bytes apart. After the last one the rest of
 * the file is read too. Returns an outcome; after a failure the image can only be ended. */
int stoker_jpeg_read(struct decode *decode, unsigned int count, unsigned char *out, size_t stride) {
  enum { AT_ONCE = 16 };
  j_decompress_ptr jpeg = &decode->jpeg;
  if (setjmp(decode->escape) != 0) return decode->outcome;
  for (JDIMENSION done = 0; done < count;) {
    JSAMPROW rows[AT_ONCE];
    JDIMENSION some = count - done < AT_ONCE ? count - done : AT_ONCE;
    for (JDIMENSION i = 0; i < some; i++) rows[i] = out + (done + i) * stride;
    done += jpeg_read_scanlines(jpeg, rows, some);
  }
  if (jpeg->output_scanline == jpeg->output_height) jpeg_finish_decompress(jpeg);
  return DONE;
}

/* What libjpeg said of a corrupt image. */
const char *stoker_jpeg_message(const struct decode *decode) { return decode->message; }

/* Gives back what libjpeg holds for an image that was started. */
void stoker_jpeg_end(struct decode *decode) { jpeg_destroy_decompress(&decode->jpeg); }
