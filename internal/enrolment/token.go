package enrolment

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// Keys of a token Secret. A token Secret that an administrator creates needs HashKey and
// ExpiresAtKey.
const (
	// HashKey is the SHA-256 of the token, in hex.
	HashKey = index.TokenHashKey
	// ExpiresAtKey is when the token expires (RFC 3339).
	ExpiresAtKey = "expires-at"
	// IssuedAtKey is when the token was issued (RFC 3339). The manager adds it to a Secret
	// that has none. The Secret's own creation time is no substitute: it becomes later when
	// the Secret is moved or restored.
	IssuedAtKey = "issued-at"
	// MaxUsesKey is the number of hosts that can enrol. Defaults to 1.
	MaxUsesKey = "max-uses"
	// UsedKey is the number of hosts that have enrolled. Defaults to 0.
	UsedKey = "used"
	// ConfigKey is a complete agent configuration with the plain token, as long as the
	// token is usable. No other key contains the plain token.
	ConfigKey = "config.yaml"
)

// MaxLifetime is the longest lifetime of a token whose hosts can be approved
// automatically. Hosts that enrol with a token of a longer lifetime need an
// administrator's approval.
const MaxLifetime = 7 * 24 * time.Hour

const hashLength = 64

// State says whether hosts can enrol with a token.
type State string

// States are reasons of the condition TokenValid.
const (
	Usable  State = infrav1.TokenUsableReason
	Expired State = infrav1.TokenExpiredReason
	UsedUp  State = infrav1.TokenUsedUpReason
)

// Token is the content of a token Secret, without the plain token.
type Token struct {
	Hash      string
	ExpiresAt time.Time
	// IssuedAt is when the token was issued; zero if the Secret does not have it.
	IssuedAt time.Time
	MaxUses  int
	Used     int
}

// ReadToken parses a token Secret. No host can enrol with a malformed one.
func ReadToken(secret *corev1.Secret) (Token, error) {
	if secret.Type != infrav1.TokenSecretType {
		return Token{}, fmt.Errorf("reading token Secret: its type is not %s", infrav1.TokenSecretType)
	}
	t := Token{Hash: string(secret.Data[HashKey])}
	if len(t.Hash) != hashLength {
		return Token{}, fmt.Errorf("reading token Secret: %s is not a hex SHA-256", HashKey)
	}
	var err error
	if t.ExpiresAt, err = time.Parse(time.RFC3339, string(secret.Data[ExpiresAtKey])); err != nil {
		return Token{}, fmt.Errorf("reading token Secret: %s: %w", ExpiresAtKey, err)
	}
	if issued, ok := secret.Data[IssuedAtKey]; ok {
		if t.IssuedAt, err = time.Parse(time.RFC3339, string(issued)); err != nil {
			return Token{}, fmt.Errorf("reading token Secret: %s: %w", IssuedAtKey, err)
		}
	}
	if t.MaxUses, err = count(secret, MaxUsesKey, 1); err != nil {
		return Token{}, err
	}
	if t.Used, err = count(secret, UsedKey, 0); err != nil {
		return Token{}, err
	}
	return t, nil
}

func count(secret *corev1.Secret, key string, absent int) (int, error) {
	text, ok := secret.Data[key]
	if !ok {
		return absent, nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("reading token Secret: %w", errors.New(key+" is not a count"))
	}
	return n, nil
}

// WriteTo sets the Secret's data, except for ConfigKey.
func (t Token) WriteTo(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[HashKey] = []byte(t.Hash)
	secret.Data[ExpiresAtKey] = []byte(t.ExpiresAt.UTC().Format(time.RFC3339))
	if !t.IssuedAt.IsZero() {
		secret.Data[IssuedAtKey] = []byte(t.IssuedAt.UTC().Format(time.RFC3339))
	}
	secret.Data[MaxUsesKey] = []byte(strconv.Itoa(t.MaxUses))
	secret.Data[UsedKey] = []byte(strconv.Itoa(t.Used))
}

// State reports whether hosts can enrol with the token.
func (t Token) State(now time.Time) State {
	switch {
	case t.Used >= t.MaxUses:
		return UsedUp
	case !now.Before(t.ExpiresAt):
		return Expired
	default:
		return Usable
	}
}

// Matches reports, in constant time, whether the plain token is this token.
func (t Token) Matches(token string) bool {
	return subtle.ConstantTimeCompare([]byte(identity.HashToken(token)), []byte(t.Hash)) == 1
}

// Issued returns when the token was issued. That is the creation of the Secret if the Secret
// does not say so, or names a later time.
func (t Token) Issued(secret *corev1.Secret) time.Time {
	created := secret.CreationTimestamp.Time
	if t.IssuedAt.IsZero() || !created.IsZero() && created.Before(t.IssuedAt) {
		return created
	}
	return t.IssuedAt
}

// LongLived reports whether the token's lifetime is longer than MaxLifetime.
func (t Token) LongLived(secret *corev1.Secret) bool {
	return t.ExpiresAt.Sub(t.Issued(secret)) > MaxLifetime+time.Minute
}
