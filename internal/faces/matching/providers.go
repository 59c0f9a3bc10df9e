package matching

import (
	"context"
	"net/http"

	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// providerBody is a provider, with the member names of a round's input.
type providerBody struct {
	ID                   string          `json:"id"`
	Status               match.Status    `json:"status"`
	Reason               string          `json:"reason"`
	Capabilities         []match.Kind    `json:"capabilities"`
	Models               []string        `json:"models"`
	Precisions           []string        `json:"precisions"`
	Gates                []string        `json:"gates"`
	MaxDepth             int64           `json:"max_depth"`
	MaxWidth             int64           `json:"max_width"`
	Region               string          `json:"region"`
	Allow                []string        `json:"allow"`
	Deny                 []string        `json:"deny"`
	Stake                int64           `json:"stake"`
	AttestationExpiresAt int64           `json:"attestation_expires_at"`
	Health               int64           `json:"health_ppb"`
	LastHeartbeatAt      int64           `json:"last_heartbeat_at"`
	CooldownUntil        match.Cooldowns `json:"cooldown_until"`
	LeasesActive         int64           `json:"leases_active"`
	AIUnitsUsed          int64           `json:"ai_units_used"`
	QuantumUnitsUsed     int64           `json:"quantum_units_used"`
	Fails                int64           `json:"fails_in_a_row"`
	Findings             int64           `json:"invalid_proofs"`
	Slashed              int64           `json:"slashed"`
	Eligible             bool            `json:"eligible"`
	RegisteredAt         int64           `json:"registered_at"`
	UpdatedAt            int64           `json:"updated_at"`
}

func providerOf(p *matchmaker.Provider) providerBody {
	return providerBody{
		ID: p.ID, Status: p.Status, Reason: p.Reason, Capabilities: some(p.Capabilities), Models: some(p.Models), Precisions: some(p.Precisions),
		Gates: some(p.Gates), MaxDepth: p.MaxDepth, MaxWidth: p.MaxWidth, Region: p.Region, Allow: some(p.Allow), Deny: some(p.Deny),
		Stake: p.Stake, AttestationExpiresAt: p.AttestationExpiresAt, Health: p.Health, LastHeartbeatAt: p.LastHeartbeatAt,
		CooldownUntil: p.CooldownUntil, LeasesActive: p.LeasesActive, AIUnitsUsed: p.AIUnitsUsed, QuantumUnitsUsed: p.QuantumUnitsUsed,
		Fails: p.Fails, Findings: p.Findings, Slashed: p.Slashed, Eligible: p.Eligible, RegisteredAt: p.RegisteredAt, UpdatedAt: p.UpdatedAt,
	}
}

// some turns a nil list into an empty one, so that it is never encoded as null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (f *Face) register(ctx context.Context, _ *httpx.None, text *httpx.Text) (*httpx.Answer[providerBody], error) {
	p, given, err := match.DecodeProvider(*text)
	if err != nil {
		return nil, err
	}
	out, err := f.dispatch.Register(ctx, p, given)
	if err != nil {
		return nil, err
	}
	answer := httpx.OK(providerOf(&out))
	if out.New {
		answer.Status = http.StatusCreated
	}
	return answer, nil
}

// providersBody is a page of providers.
type providersBody struct {
	Providers []providerBody `json:"providers"`
	Next      string         `json:"next_cursor"`
}

func (f *Face) providers(ctx context.Context, in *pageInput, _ *httpx.None) (*httpx.Answer[providersBody], error) {
	limit, err := in.limit(defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	list, err := f.dispatch.Providers(ctx, in.Cursor, limit+1)
	if err != nil {
		return nil, err
	}
	var out providersBody
	if len(list) > limit {
		list = list[:limit]
		out.Next = list[limit-1].ID
	}
	out.Providers = make([]providerBody, len(list))
	for i := range list {
		out.Providers[i] = providerOf(&list[i])
	}
	return httpx.OK(out), nil
}

func (f *Face) provider(ctx context.Context, in *idInput, _ *httpx.None) (*httpx.Answer[providerBody], error) {
	p, err := f.dispatch.Provider(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return httpx.OK(providerOf(&p)), nil
}

func (f *Face) heartbeat(ctx context.Context, in *idInput, _ *emptyBody) (*httpx.Answer[providerBody], error) {
	p, err := f.dispatch.Heartbeat(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return httpx.OK(providerOf(&p)), nil
}

type statusRequest struct {
	Status string `json:"status" enum:"ACTIVE,JAILED,SUSPENDED,RETIRED"`
	Reason string `json:"reason,omitzero"`
}

func (f *Face) status(ctx context.Context, in *idInput, body *statusRequest) (*httpx.Answer[providerBody], error) {
	status, err := match.ParseStatus(body.Status)
	if err != nil {
		return nil, err
	}
	p, err := f.dispatch.SetStatus(ctx, in.ID, status, body.Reason)
	if err != nil {
		return nil, err
	}
	return httpx.OK(providerOf(&p)), nil
}

func (f *Face) remove(ctx context.Context, in *idInput, _ *httpx.None) (*httpx.Answer[httpx.None], error) {
	return nil, f.dispatch.Remove(ctx, in.ID)
}
