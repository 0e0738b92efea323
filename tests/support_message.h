/* support_message.h: what a server says, as bytes, from phrases that can be read. */
#ifndef PQTX_TESTS_SUPPORT_MESSAGE_H
#define PQTX_TESTS_SUPPORT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    char *data;
    size_t len, capacity;
};

void bytes_add(struct bytes *bytes, const void *data, size_t len);
void bytes_free(struct bytes *bytes);

/* Adds the message that a phrase stands for; the test fails if there is no such one.
 *
 *     complete TAG                  CommandComplete
 *     error SQLSTATE [FUNCTION [TEXT [| DETAIL]]]
 *                                   ErrorResponse as PostgreSQL sends it, severity ERROR
 *     fatal …, panic …              the same with severity FATAL, PANIC
 *     notice …, warning …           NoticeResponse with severity NOTICE, WARNING
 *     pooler SEVERITY SQLSTATE [TEXT]
 *                                   ErrorResponse without the fields V, F, L and R
 *     columns NAME …                RowDescription, all of type text
 *     row VALUE|VALUE…              DataRow; NULL is the word NULL
 *     parsed, bound, nodata         ParseComplete, BindComplete, NoData
 *     ready STATE                   ReadyForQuery: I, T or E
 *     authenticated                 AuthenticationOk
 *     key PID                       BackendKeyData
 *     parameter NAME VALUE          ParameterStatus
 *     notify CHANNEL                NotificationResponse
 *     copyin, copyout, copyboth     CopyInResponse, …
 *     hex DIGITS                    these bytes, whatever they are */
void say_phrase(struct bytes *bytes, const char *phrase);

/* Whether the phrase begins with this word, and what follows the word. */
bool begins_with(const char *phrase, const char *word);
const char *after_word(const char *phrase);

#endif
