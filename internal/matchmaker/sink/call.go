package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/webhook"
)

// maxAnswer limits how much of a response is read.
const maxAnswer = 64 << 10

// caller posts signed JSON to one URL. The operator chose it, so that it may be any address.
type caller struct {
	url    string
	secret webhook.Secret
	client *http.Client
}

func newCaller(url string, secret webhook.Secret) *caller {
	return &caller{url, secret, &http.Client{
		Timeout:       within,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// call posts a body under an id. If into is not nil, the response is decoded into it. Any
// status other than 2xx is an error.
func (c *caller) call(ctx context.Context, id string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", id, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("call %s: %w", c.url, err)
	}
	now := time.Now()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(webhook.HeaderID, id)
	request.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(webhook.HeaderSignature, c.secret.Sign(id, now, text))
	answer, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", c.url, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		return fmt.Errorf("%s answered with status %d", c.url, answer.StatusCode)
	case into == nil:
		return nil
	case err != nil:
		return fmt.Errorf("the answer of %s broke off: %w", c.url, err)
	}
	d := json.NewDecoder(bytes.NewReader(said))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s did not answer as documented: %w", c.url, err)
	}
	return nil
}

// ProofsAt returns a checker that asks a URL. If it does not answer, completions are refused
// as unavailable, and providers can repeat them.
func ProofsAt(url string, e Environment) match.ProofChecker {
	return proofs{newCaller(url, e.Secret)}
}

type proofs struct{ *caller }

func (p proofs) CheckProof(ctx context.Context, c match.Completion) (string, error) {
	var answer struct {
		Flaw *string `json:"flaw"`
	}
	if err := p.call(ctx, "proof-"+string(c.Lease), c, &answer); err != nil {
		return "", err
	}
	if answer.Flaw == nil {
		return "", fmt.Errorf("%s did not answer as documented: flaw is missing; it is empty for a valid proof", p.url)
	}
	return *answer.Flaw, nil
}

// JudgeAt returns an SLA engine that asks a URL.
func JudgeAt(url string, e Environment) match.Judge { return judge{newCaller(url, e.Secret)} }

type judge struct{ *caller }

func (j judge) Judge(ctx context.Context, f match.Finding) (match.Judgement, error) {
	var answer match.Judgement
	if err := j.call(ctx, "finding-"+string(f.Lease), f, &answer); err != nil {
		return match.Judgement{}, err
	}
	if answer.Penalty < 0 {
		return match.Judgement{}, fmt.Errorf("%s did not answer as documented: the penalty is %d", j.url, answer.Penalty)
	}
	return answer, nil
}
