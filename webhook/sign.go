// Package webhook checks that a request is a delivery of a GopherQueue server, and signs
// deliveries, after the Standard Webhooks convention.
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

// Headers of a delivery, after the Standard Webhooks convention.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Secret signs deliveries. The receivers have it too.
type Secret []byte

const secretPrefix = "whsec_"

// NewSecret generates a secret of 256 bits.
func NewSecret() Secret {
	s := make(Secret, 32)
	_, _ = rand.Read(s) // never fails
	return s
}

// ParseSecret reads whsec_ followed by 24 to 64 bytes in base64. Any other text of that size is
// itself the secret.
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

// Text is the secret as receivers configure it.
func (s Secret) Text() string { return secretPrefix + base64.StdEncoding.EncodeToString(s) }

// String keeps the secret out of logs.
func (s Secret) String() string { return secretPrefix + "…" }

// Sign is the signature of a body that is sent under an id at a time.
func (s Secret) Sign(id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, s)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Tolerance is how old a delivery may be for a receiver to accept it.
const Tolerance = 5 * time.Minute

// Verify reports whether one of the signatures is that of the body, and was made within
// [Tolerance].
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

// Verify reports whether a request with these headers and this body was signed with the secret
// within the last five minutes. The secret is what gq webhook secret prints. The error is
// [gq.ErrDenied] if it was not, and [gq.ErrInvalid] for an invalid secret.
func Verify(secret string, header http.Header, body []byte) error {
	s, err := ParseSecret(secret)
	if err != nil {
		return err
	}
	return s.Verify(header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature), body, time.Now())
}
