package ignition

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// readDataURL decodes a "data" URL (RFC 2397), the only source that needs no
// network. An empty source is an empty file.
func readDataURL(source string) ([]byte, error) {
	if source == "" {
		return nil, nil
	}
	scheme, rest, found := strings.Cut(source, ":")
	if !found || !strings.EqualFold(scheme, "data") {
		return nil, fmt.Errorf("it has the scheme %q; remote sources are not fetched, so write the content as a data URL", scheme)
	}
	kind, text, found := strings.Cut(rest, ",")
	if !found {
		return nil, errors.New("the data URL has no comma before its data")
	}
	text, err := url.PathUnescape(text)
	if err != nil {
		return nil, fmt.Errorf("decoding the data URL: %w", err)
	}
	if !strings.HasSuffix(strings.ToLower(kind), ";base64") {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("decoding the data URL: bad base64: %w", err)
	}
	return data, nil
}

// verify returns an error if data does not match hash, which has the form
// "sha512-0123…". An empty hash matches all data.
func verify(data []byte, hash string) error {
	if hash == "" {
		return nil
	}
	name, want, _ := strings.Cut(hash, "-")
	var sum []byte
	switch name {
	case "sha256":
		s := sha256.Sum256(data)
		sum = s[:]
	case "sha512":
		s := sha512.Sum512(data)
		sum = s[:]
	default:
		return fmt.Errorf("the hash %q is unknown; known are sha256-… and sha512-…", name)
	}
	if got := hex.EncodeToString(sum); !strings.EqualFold(got, want) {
		return fmt.Errorf("the content has the hash %s-%s, not the %s that the document verifies it by", name, got, hash)
	}
	return nil
}
