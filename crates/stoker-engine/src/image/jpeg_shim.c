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

static void leave(j_common_ptr jpeg, int outcome) {
  struct decode *decode = decode_of((j_decompress_ptr)jpeg);
  decode->outcome = outcome;
  longjmp(decode->escape, 1);
}

static void on_error(j_common_ptr jpeg) {
  jpeg->err->format_message(jpeg, decode_of((j_decompress_ptr)jpeg)->message);
  leave(jpeg, CORRUPT);
}

static void on_message(j_common_ptr jpeg, int level) { (void)jpeg, (void)level; }

static void on_progress(j_common_ptr jpeg) {
  j_decompress_ptr image = (j_decompress_ptr)jpeg;
  if (image->input_scan_number > decode_of(image)->max_scans)
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

/* By how much colour is stored coarser than brightness, downwards, if it is half as wide and what is left
 * to do with its samples is ours (planes.rs): 1 or 2. Else 0. */
static int planes_of(const struct jpeg_decompress_struct *jpeg) {
  const jpeg_component_info *luma = jpeg->comp_info, *blue = luma + 1, *red = luma + 2;
  if (jpeg->num_components != 3 || jpeg->jpeg_color_space != JCS_YCbCr || jpeg->scale_denom != 1) return 0;
  if (luma->h_samp_factor != 2 || luma->v_samp_factor > 2) return 0;
  if (blue->h_samp_factor != 1 || blue->v_samp_factor != 1) return 0;
  if (red->h_samp_factor != 1 || red->v_samp_factor != 1) return 0;
  /* libjpeg-turbo does not smooth narrower ones. */
  return blue->downsampled_width > 2 ? luma->v_samp_factor : 0;
}

static void start(struct decode *decode, const struct ask *ask) {
  j_decompress_ptr jpeg = &decode->jpeg;
  jpeg_create_decompress(jpeg);
  jpeg->src = &decode->source;
  jpeg->progress = &decode->progress;
  jpeg_read_header(jpeg, TRUE);
  jpeg->scale_num = 1;
  jpeg->scale_denom = ask->shrink;
  jpeg->out_color_space = ask->channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(jpeg);
  if (jpeg->output_width != ask->width || jpeg->output_height != ask->height ||
      (jpeg->num_components == 4) != (ask->channels == 4))
    leave((j_common_ptr)jpeg, OTHER_SIZE);
  decode->planes = ask->planes && ask->channels == 3 ? planes_of(jpeg) : 0;
  jpeg->raw_data_out = decode->planes > 0;
  jpeg_start_decompress(jpeg);
  stoker_jpeg_quicken(decode, ask);
}

/* Memory for one image after the other, or null. */
struct decode *stoker_jpeg_new(void) {
  struct decode *decode = aligned_alloc(_Alignof(struct decode), sizeof(struct decode));
  if (decode != NULL) memset(decode, 0, sizeof *decode);
  return decode;
}

void stoker_jpeg_free(struct decode *decode) { free(decode); }

/* Starts an image, whose bytes stay until it is ended. Returns an outcome. */
int stoker_jpeg_start(struct decode *decode, const unsigned char *bytes, size_t length,
                      const struct ask *ask) {
  memset(&decode->jpeg, 0, sizeof decode->jpeg);
  memset(&decode->source, 0, sizeof decode->source);
  memset(&decode->progress, 0, sizeof decode->progress);
  decode->outcome = DONE;
  decode->max_scans = ask->max_scans;
  decode->planes = 0;
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
  if (setjmp(decode->escape) == 0) start(decode, ask);
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

/* Whether an image that was started gives planes, and how many rows of brightness there are for one of
 * colour: 0, 1 or 2. */
int stoker_jpeg_planes(const struct decode *decode) { return decode->planes; }

/* Reads the next eight rows of colour, and of brightness what belongs to them, each that many bytes apart:
 * whole blocks, of which those that lie beyond the image's last rows are left out. After the last ones the
 * rest of the file is read too. Returns an outcome; after a failure the image can only be ended. */
int stoker_jpeg_read_planes(struct decode *decode, unsigned char *luma, size_t luma_stride,
                            unsigned char *blue, unsigned char *red, size_t chroma_stride) {
  j_decompress_ptr jpeg = &decode->jpeg;
  if (setjmp(decode->escape) != 0) return decode->outcome;
  if (jpeg->comp_info[0].width_in_blocks * DCTSIZE > luma_stride ||
      jpeg->comp_info[1].width_in_blocks * DCTSIZE > chroma_stride ||
      jpeg->comp_info[2].width_in_blocks * DCTSIZE > chroma_stride)
    leave((j_common_ptr)jpeg, OTHER_SIZE);
  JSAMPROW rows[3][2 * DCTSIZE];
  for (size_t i = 0; i < 2 * DCTSIZE; i++) {
    rows[0][i] = luma + i % (DCTSIZE * (size_t)decode->planes) * luma_stride;
    rows[1][i] = blue + i % DCTSIZE * chroma_stride;
    rows[2][i] = red + i % DCTSIZE * chroma_stride;
  }
  JSAMPARRAY planes[] = {rows[0], rows[1], rows[2]};
  /* It has all the bytes there are, so it never stops for want of them. */
  if (jpeg_read_raw_data(jpeg, planes, 2 * DCTSIZE) == 0) leave((j_common_ptr)jpeg, TRUNCATED);
  if (jpeg->output_scanline >= jpeg->output_height) jpeg_finish_decompress(jpeg);
  return DONE;
}

/* What libjpeg said of a corrupt image. */
const char *stoker_jpeg_message(const struct decode *decode) { return decode->message; }

/* Gives back what libjpeg holds for an image that was started. */
void stoker_jpeg_end(struct decode *decode) { jpeg_destroy_decompress(&decode->jpeg); }
