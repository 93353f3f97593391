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

// Keys of a token Secret. An administrator's own token Secret needs the hash
// and the time of expiry.
const (
	// HashKey holds the hex SHA-256 of the token.
	HashKey = index.TokenHashKey
	// ExpiresAtKey holds the time of expiry, RFC 3339.
	ExpiresAtKey = "expires-at"
	// MaxUsesKey holds how many hosts may enrol; 1 when absent.
	MaxUsesKey = "max-uses"
	// UsedKey holds how many hosts have enrolled; 0 when absent.
	UsedKey = "used"
	// ConfigKey holds a complete agent configuration with the token in plain,
	// while the token is usable. Nothing else holds it.
	ConfigKey = "config.yaml"
)

// MaxLifetime is how long a token lives that lets hosts in without an
// administrator. Hosts that come by one which lives longer wait for approval.
const MaxLifetime = 7 * 24 * time.Hour

const hashLength = 64

// State tells whether hosts can enrol with a token.
type State string

// States, in the terms of the TokenValid condition's reasons.
const (
	Usable  State = infrav1.TokenUsableReason
	Expired State = infrav1.TokenExpiredReason
	UsedUp  State = infrav1.TokenUsedUpReason
)

// Token is what a token Secret says of its token.
type Token struct {
	Hash      string
	ExpiresAt time.Time
	MaxUses   int
	Used      int
}

// ReadToken parses a token Secret. A Secret that is not well-formed lets nobody
// in.
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

// WriteTo sets the Secret's data, but for the configuration.
func (t Token) WriteTo(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[HashKey] = []byte(t.Hash)
	secret.Data[ExpiresAtKey] = []byte(t.ExpiresAt.UTC().Format(time.RFC3339))
	secret.Data[MaxUsesKey] = []byte(strconv.Itoa(t.MaxUses))
	secret.Data[UsedKey] = []byte(strconv.Itoa(t.Used))
}

// State tells whether hosts can enrol with the token.
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

// Matches tells in constant time whether this is the token.
func (t Token) Matches(token string) bool {
	return subtle.ConstantTimeCompare([]byte(identity.HashToken(token)), []byte(t.Hash)) == 1
}

// LongLived tells whether the token of the Secret lives longer than MaxLifetime
// since it was made.
func (t Token) LongLived(secret *corev1.Secret) bool {
	return t.ExpiresAt.Sub(secret.CreationTimestamp.Time) > MaxLifetime+time.Minute
}
