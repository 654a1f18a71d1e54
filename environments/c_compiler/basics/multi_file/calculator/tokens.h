#ifndef TOKENS_H
#define TOKENS_H

enum token_kind { END, NUMBER, SYMBOL, BAD };

struct token {
    enum token_kind kind;
    long value;
};

/* Reads one token and moves on behind it. */
struct token next_token(const char **at);

#endif
