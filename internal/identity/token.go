package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// tokenBytes: 256 bits can't be guessed, so tokens need no slow hash.
const tokenBytes = 32

// NewToken makes a registration token: 256 random bits, safe in URLs, file names
// and YAML.
func NewToken() string {
	secret := make([]byte, tokenBytes)
	// It never fails: it ends the program rather than return weak bits.
	_, _ = rand.Read(secret)
	return base64.RawURLEncoding.EncodeToString(secret)
}

// HashToken returns the hex SHA-256 of a token, the only form of it that is kept.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
