package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// tokenBytes are 256 bits, which can't be guessed, so tokens need no slow hash.
const tokenBytes = 32

// NewToken returns a registration token of 256 random bits. It is safe in URLs, file
// names and YAML.
func NewToken() string {
	secret := make([]byte, tokenBytes)
	// rand.Read never returns an error.
	_, _ = rand.Read(secret)
	return base64.RawURLEncoding.EncodeToString(secret)
}

// HashToken returns the hex SHA-256 of a token, by which the manager finds it.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
