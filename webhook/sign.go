// Package webhook verifies and signs webhook deliveries of a GopherQueue server,
// following the Standard Webhooks convention.
//
//	body, err := io.ReadAll(r.Body)
//	…
//	if err := webhook.Verify(secret, r.Header, body); err != nil {
//		http.Error(w, "not from our queue", http.StatusUnauthorized)
//	}
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// Headers of a delivery, as Standard Webhooks names them.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Secret is the key that signs deliveries. Receivers share it.
type Secret []byte

const secretPrefix = "whsec_"

// NewSecret generates a secret of 256 bits.
func NewSecret() Secret {
	s := make(Secret, 32)
	_, _ = rand.Read(s) // never fails
	return s
}

// ParseSecret parses whsec_ followed by 24 to 64 bytes in base64. Any other text of that
// length is the secret itself.
func ParseSecret(text string) (Secret, error) {
	raw := []byte(text)
	var err error
	if encoded, ok := strings.CutPrefix(text, secretPrefix); ok {
		raw, err = base64.StdEncoding.DecodeString(encoded)
	}
	if err != nil || len(raw) < 24 || len(raw) > 64 {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{
			Field: "webhooks.secret", Problem: "is neither whsec_ followed by 24 to 64 bytes in base64 nor a text of 24 to 64 bytes",
		}}}
	}
	return raw, nil
}

// Text returns the secret in the form that receivers configure.
func (s Secret) Text() string { return secretPrefix + base64.StdEncoding.EncodeToString(s) }

// String hides the secret from logs.
func (s Secret) String() string { return secretPrefix + "…" }

// Sign returns the signature of a body sent under the given id at the given time.
func (s Secret) Sign(id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, s)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Tolerance is the maximum age of a delivery that a receiver accepts.
const Tolerance = 5 * time.Minute

// Verify checks that one of the signatures matches the body and that the timestamp is
// within [Tolerance] of now.
func (s Secret) Verify(id, timestamp, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	at := time.Unix(seconds, 0)
	if err != nil || now.Sub(at).Abs() > Tolerance {
		return fmt.Errorf("verify webhook: the timestamp %.20q is not of now: %w", timestamp, gq.ErrDenied)
	}
	want := s.Sign(id, at, body)
	for given := range strings.FieldsSeq(signatures) {
		if hmac.Equal([]byte(given), []byte(want)) {
			return nil
		}
	}
	return fmt.Errorf("verify webhook: no signature fits: %w", gq.ErrDenied)
}

// Verify checks that the request's headers and body were signed with the secret, within
// the last five minutes. The secret is what gq webhook secret prints. The error is
// [gq.ErrDenied] if the check fails, and [gq.ErrInvalid] for an invalid secret.
func Verify(secret string, header http.Header, body []byte) error {
	s, err := ParseSecret(secret)
	if err != nil {
		return err
	}
	return s.Verify(header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature), body, time.Now())
}
