#include "turns.h"

/* Turns */

static int has_role(Text roles, uint8_t role) { return memchr(roles.bytes, role, roles.size) != NULL; }

static int is_same_turn(const Bits *bits, const Turn *one, const Turn *other) {
    unsigned minded = ~bits->marks;
    if (one->role != other->role || (one->there ^ other->there) & minded) return 0;
    unsigned held = one->there & minded;
    for (int i = 0; held >> i; i++)
        if (held >> i & 1 && !is_same(one->said[i], other->said[i])) return 0;
    return 1;
}

static const Turn *turn_of(const Line *line, const Talk *talk, int at) {
    return &line->turns[talk->turns[at]];
}

static int same_turns(const Bits *bits, const Line *line, const Talk *one, const Talk *other, int count) {
    for (int i = 0; i < count; i++)
        if (!is_same_turn(bits, turn_of(line, one, i), turn_of(line, other, i))) return 0;
    return 1;
}

static int begins_with_role(const Line *line, const Talk *talk, Text roles) {
    return talk->count && has_role(roles, turn_of(line, talk, 0)->role);
}

static int ends_with_role(const Line *line, const Talk *talk, Text roles) {
    return talk->count && has_role(roles, turn_of(line, talk, talk->count - 1)->role);
}

/* Tell whether a reply brings no turns along: it begins with the assistant's. */
static int is_alone(const Line *line, const Talk *reply, Text assistant) {
    return !reply->count || begins_with_role(line, reply, assistant);
}

/* How many turns both begin with, up to the last of them that asks for a reply. */
static int shared(const Bits *bits, const Line *line, const Talk *one, const Talk *other, Text asking) {
    int asked = 0;
    for (int i = 0; i < one->count && i < other->count; i++) {
        if (!is_same_turn(bits, turn_of(line, one, i), turn_of(line, other, i))) break;
        if (has_role(asking, turn_of(line, one, i)->role)) asked = i + 1;
    }
    return asked;
}

/* Conversations */

static int append(Talk *talk, int turn) {
    if (talk->count == MOST_TURNS) return 0;
    talk->turns[talk->count++] = (uint8_t)turn;
    return 1;
}

static int append_some(Talk *talk, const Talk *other, int from, int to) {
    for (int i = from; i < to; i++)
        if (!append(talk, other->turns[i])) return 0;
    return 1;
}

/* Append a text as a turn of its own. */
static int append_text(Line *line, Talk *talk, uint8_t role, Text text) {
    if (line->turn_count == MOST_TURNS) return 0;
    Turn *turn = &line->turns[line->turn_count];
    turn->role = role;
    turn->there = HAS_CONTENT;
    turn->said[0] = text;
    return append(talk, line->turn_count++);
}

static int make_texts(const Step *step, Line *line, Talk *made) {
    for (int i = 0; i < step->slot_count; i++) {
        Text text = line->texts[step->slots[i]];
        if (text.size && !append_text(line, made, step->roles.bytes[i], text)) return 0;
    }
    return 1;
}

static int make_messages(const Step *step, const Line *line, Talk *made) {
    Span span = line->spans[step->slots[0]];
    for (int i = 0; i < span.count; i++)
        if (!append(made, span.first + i)) return 0;
    return 1;
}

static int make_with_system(const Step *step, Line *line, const Talk *of, Talk *made) {
    Text system = line->texts[step->slots[0]];
    if (system.size && !begins_with_role(line, of, step->roles) &&
        !append_text(line, made, step->roles.bytes[0], system))
        return 0;
    return append_some(made, of, 0, of->count);
}

static int make_without_answer(const Step *step, const Bits *bits, const Line *line, const Talk *of,
                               const Talk *other, Talk *made) {
    int leaks = other->count && ends_with_role(line, of, step->roles) &&
                is_same_turn(bits, turn_of(line, of, of->count - 1),
                             turn_of(line, other, other->count - 1));
    return append_some(made, of, 0, of->count - leaks);
}

int make_talk(const Step *step, const Bits *bits, Line *line, Talk *talks, Talk *made) {
    const Talk *one = &talks[step->one], *other = &talks[step->other];
    int alone, leads;
    made->count = 0;
    switch (step->kind) {
    case MAKE_TEXTS: return make_texts(step, line, made);
    case MAKE_MESSAGES: return make_messages(step, line, made);
    case MAKE_WITH_SYSTEM: return make_with_system(step, line, one, made);
    case MAKE_WITHOUT_SYSTEM:
        leads = begins_with_role(line, one, step->roles);
        return append_some(made, one, leads, one->count);
    case MAKE_ALL_BUT_LAST: return append_some(made, one, 0, one->count - 1);
    case MAKE_LAST: return append_some(made, one, one->count ? one->count - 1 : 0, one->count);
    case MAKE_WITHOUT_ANSWER: return make_without_answer(step, bits, line, one, other, made);
    case MAKE_AFTER_CONTEXT:
        alone = is_alone(line, other, step->roles);
        return append_some(made, one, 0, alone ? one->count : 0) &&
               append_some(made, other, 0, other->count);
    case MAKE_PROMPT_TURNS:
        alone = is_alone(line, other, step->roles);
        return alone ? append_some(made, one, 0, one->count)
                     : append_some(made, other, 0, other->count - 1);
    case MAKE_SHARED:
        return append_some(made, one, 0, shared(bits, line, one, other, step->roles));
    case MAKE_AFTER_SHARED:
        return append_some(made, one, shared(bits, line, one, other, step->roles), one->count);
    default: return 0;
    }
}

/* Rules */

static int says_without_text(const Turn *turn, unsigned said) {
    for (int i = 1; said >> i; i++)
        if (said & turn->there & 1u << i && stripped(turn->said[i], 1, 1).size) return 1;
    return 0;
}

/* Whether a message says nothing: all keys that count instead of a text are blank too, and its role is none of
   those whose text may be blank. */
static int is_flawed(const Step *rule, const Bits *bits, const Line *line) {
    Span span = line->spans[rule->slots[0]];
    for (int i = 0; i < span.count; i++) {
        const Turn *turn = &line->turns[span.first + i];
        if (has_role(rule->roles, turn->role) || says_without_text(turn, bits->said)) continue;
        if (!(turn->there & HAS_CONTENT) || !stripped(turn->said[0], 1, 1).size) return 1;
    }
    return !span.count;
}

static int has_turn_of(const Line *line, const Talk *talk, Text roles) {
    for (int i = 0; i < talk->count; i++)
        if (has_role(roles, turn_of(line, talk, i)->role)) return 1;
    return 0;
}

static int is_foreign(const Step *rule, const Bits *bits, const Line *line, const Talk *context,
                      const Talk *reply) {
    if (is_alone(line, reply, rule->roles)) return 0;
    return reply->count < context->count || !same_turns(bits, line, context, reply, context->count);
}

/* Whether a reply alone is several: more than one message or, with `so`, than one after calls of tools and
   their results. The letters are those of the assistant and of the tool. */
static int is_several(const Step *rule, const Bits *bits, const Line *line, const Talk *reply) {
    if (!rule->so) return reply->count > 1;
    Text assistant = {rule->roles.bytes, 1};
    if (!is_alone(line, reply, assistant)) return 0;
    for (int i = 0; i + 1 < reply->count; i++) {
        const Turn *turn = turn_of(line, reply, i);
        if (turn->role != rule->roles.bytes[1] && !(turn->there & bits->calls)) return 1;
    }
    return 0;
}

static int is_other_system(const Step *rule, const Line *line, const Talk *of) {
    Text system = line->texts[rule->slots[0]];
    if (!system.size || !begins_with_role(line, of, rule->roles)) return 0;
    const Turn *first = turn_of(line, of, 0);
    return !(first->there & HAS_CONTENT) || !is_same(first->said[0], system);
}

/* Without the white space of ASCII, which everybody agrees on. */
static Text bare(Text text) {
    while (text.size && (*text.bytes == ' ' || (*text.bytes >= '\t' && *text.bytes <= '\r'))) {
        text.bytes++;
        text.size--;
    }
    while (text.size && (text.bytes[text.size - 1] == ' ' || (text.bytes[text.size - 1] >= '\t' &&
                                                              text.bytes[text.size - 1] <= '\r')))
        text.size--;
    return text;
}

static int is_question_missing(const Step *rule, const Line *line, const Talk *of) {
    Text question = line->texts[rule->slots[0]];
    if (!question.size) return 0;
    for (int i = 0; i < of->count; i++) {
        const Turn *turn = turn_of(line, of, i);
        if (has_role(rule->roles, turn->role) && turn->there & HAS_CONTENT &&
            is_same(bare(turn->said[0]), bare(question)))
            return 0;
    }
    return 1;
}

int is_left(const Step *rule, const Bits *bits, const Line *line, const Talk *talks) {
    const Talk *one = &talks[rule->one], *other = &talks[rule->other];
    switch (rule->kind) {
    case RULE_BLANK: return !stripped(line->texts[rule->slots[0]], 1, 1).size;
    case RULE_EQUAL:
        return is_same(line->texts[rule->slots[0]], line->texts[rule->slots[1]]);
    case RULE_FLAWED: return is_flawed(rule, bits, line);
    case RULE_ENDS: return ends_with_role(line, one, rule->roles) == rule->so;
    case RULE_HAS_ROLE: return has_turn_of(line, one, rule->roles) == rule->so;
    case RULE_SAME:
        return (one->count == other->count && same_turns(bits, line, one, other, one->count)) ==
               rule->so;
    case RULE_FOREIGN: return is_foreign(rule, bits, line, one, other);
    case RULE_SEVERAL: return is_several(rule, bits, line, one);
    case RULE_OTHER_SYSTEM: return is_other_system(rule, line, one);
    case RULE_QUESTION_MISSING: return is_question_missing(rule, line, one);
    default: return 1;
    }
}
