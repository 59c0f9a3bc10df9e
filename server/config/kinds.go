package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// kind parses and prints the value of a key.
type kind interface {
	set(text string) error // the error says what is wrong and what is expected
	text() string
}

type textKind struct {
	to     *string
	among  []string // allowed values; empty allows any
	secret bool
}

func (k *textKind) set(text string) error {
	if len(k.among) > 0 && !slices.Contains(k.among, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(k.among, ", "))
	}
	*k.to = text
	return nil
}

func (k *textKind) text() string {
	if k.secret && *k.to != "" {
		return "(secret)"
	}
	return *k.to
}

// storeKind is a store URL; opening the store checks what it names.
type storeKind struct {
	to     *string
	prefix string
}

func (k *storeKind) set(text string) error {
	if text == "" {
		return fmt.Errorf("is empty; want a store such as file:gq-data")
	}
	*k.to = k.prefix + text
	return nil
}

func (k *storeKind) text() string { return Redact(*k.to) }

// Redact removes passwords from a store URL. Of a malformed URL it shows only the scheme.
func Redact(store string) string {
	u, err := url.Parse(store)
	if err != nil {
		if kind, _, ok := strings.Cut(store, "://"); ok {
			return kind + "://..."
		}
		return store
	}
	query, secret := u.Query(), false
	for _, name := range []string{"password", "sslpassword"} {
		if query.Has(name) {
			query.Set(name, "xxxxx")
			secret = true
		}
	}
	if u.User == nil && !secret {
		return store
	}
	if secret {
		u.RawQuery = query.Encode()
	}
	return u.Redacted()
}

type boolKind struct{ to *bool }

func (k *boolKind) set(text string) error {
	switch text {
	case "true", "false":
		*k.to = text == "true"
		return nil
	}
	return fmt.Errorf("%q is not true or false", text)
}

func (k *boolKind) text() string { return strconv.FormatBool(*k.to) }

type durationKind struct {
	to          *time.Duration
	least, most time.Duration
}

func (k *durationKind) set(text string) error {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration such as 30s, 5m or 168h", text)
	case d < k.least || d > k.most:
		return fmt.Errorf("%v is not between %v and %v", d, k.least, k.most)
	}
	*k.to = d
	return nil
}

func (k *durationKind) text() string { return k.to.String() }

type numberKind[T ~int | ~int64] struct {
	to          *T
	least, most T
}

func (k *numberKind[T]) set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a whole number", text)
	case T(n) < k.least || T(n) > k.most:
		return fmt.Errorf("%d is not between %d and %d", n, k.least, k.most)
	}
	*k.to = T(n)
	return nil
}

func (k *numberKind[T]) text() string { return strconv.FormatInt(int64(*k.to), 10) }

// sizeKind is a number of bytes.
type sizeKind struct {
	to          *int
	least, most int
}

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

func (k *sizeKind) set(text string) error {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a size such as 1048576, 512KiB or 1MiB", text)
	case n < 0 || n > int64(k.most)/unit+1 || n*unit < int64(k.least) || n*unit > int64(k.most):
		return fmt.Errorf("%s is not between %s and %s", text, size(k.least), size(k.most))
	}
	*k.to = int(n * unit)
	return nil
}

func (k *sizeKind) text() string { return size(*k.to) }

// size prints a number of bytes in the largest unit that divides it.
func size(n int) string {
	for _, u := range []struct {
		suffix string
		bytes  int
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.Itoa(n/u.bytes) + u.suffix
		}
	}
	return strconv.Itoa(n)
}

type levelKind struct{ to *slog.Level }

var levels = []string{"debug", "info", "warn", "error"}

func (k *levelKind) set(text string) error {
	if !slices.Contains(levels, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(levels, ", "))
	}
	return k.to.UnmarshalText([]byte(text))
}

func (k *levelKind) text() string { return strings.ToLower(k.to.String()) }

// presetKind is a preset that a user may choose; the others belong to their APIs.
type presetKind struct{ to *gq.Preset }

var presets = []string{"jobmodel", "semantics", "resilient"}

func (k *presetKind) set(text string) error {
	if !slices.Contains(presets, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(presets, ", "))
	}
	return k.to.UnmarshalText([]byte(text))
}

func (k *presetKind) text() string { return k.to.String() }

// listKind is a comma-separated list; in a file it may also be a YAML list.
type listKind struct{ to *[]string }

func (k *listKind) set(text string) error {
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	*k.to = all
	return nil
}

func (k *listKind) text() string { return strings.Join(*k.to, ", ") }
