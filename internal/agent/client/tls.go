package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
)

// ParseTrustBundle reads PEM certificates; nothing else may be in it.
func ParseTrustBundle(bundle string) (*x509.CertPool, error) {
	pool, rest, count := x509.NewCertPool(), []byte(bundle), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a trust bundle holds certificates only, not %q", block.Type)
		}
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing certificate %d of the trust bundle: %w", count+1, err)
		}
		pool.AddCert(root)
		count++
	}
	if count == 0 {
		return nil, errors.New("the trust bundle holds no PEM certificate")
	}
	return pool, nil
}

// ParseServer checks a server's base URL.
func ParseServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return nil, fmt.Errorf("server %q is not a URL", server)
	case u.Scheme != "https":
		return nil, fmt.Errorf("server %q does not begin with https://", server)
	case u.Hostname() == "":
		return nil, fmt.Errorf("server %q names no host", server)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("server %q has more than https://host:port/path", u.Redacted())
	}
	return u, nil
}

func (e *clockEstimate) tlsConfig(roots *x509.CertPool, certificate tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		Certificates: []tls.Certificate{certificate},
		Time:         e.time,
	}
}
