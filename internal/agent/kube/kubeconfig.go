package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
)

// Access is the server and the credentials of a kubeconfig's current context.
type Access struct {
	Server *url.URL
	// TLS contains the server's certificate authority and one client certificate.
	TLS *tls.Config
	// Authorities are the certificates of that authority. There are several while it is replaced.
	Authorities []*x509.Certificate
	// Dial opens connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// User returns the user name in the client certificate.
func (a Access) User() string { return a.TLS.Certificates[0].Leaf.Subject.CommonName }

type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server        string `yaml:"server"`
	TLSServerName string `yaml:"tls-server-name"`
	CA            string `yaml:"certificate-authority"`
	CAData        string `yaml:"certificate-authority-data"`
}

type user struct {
	Certificate     string `yaml:"client-certificate"`
	CertificateData string `yaml:"client-certificate-data"`
	Key             string `yaml:"client-key"`
	KeyData         string `yaml:"client-key-data"`
}

// Load reads a kubeconfig. Its server must be an https URL.
func Load(path string) (Access, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Access{}, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	var config kubeconfig
	if err := Decode(data, &config); err != nil {
		return Access{}, fmt.Errorf("reading %s: %w", path, err)
	}
	a, err := config.access(filepath.Dir(path))
	if err != nil {
		return Access{}, fmt.Errorf("using %s: %w", path, err)
	}
	return a, nil
}

func (k kubeconfig) access(base string) (Access, error) {
	clusterName, userName := k.current()
	var a Access
	for _, c := range k.Clusters {
		if c.Name != clusterName {
			continue
		}
		server, err := url.Parse(c.Cluster.Server)
		if err != nil || server.Scheme != "https" || server.Host == "" {
			return Access{}, fmt.Errorf("its server %q is not an https URL", c.Cluster.Server)
		}
		authorities, err := c.Cluster.authorities(base)
		if err != nil {
			return Access{}, err
		}
		roots := x509.NewCertPool()
		for _, authority := range authorities {
			roots.AddCert(authority)
		}
		a.Server, a.Authorities = server, authorities
		a.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: c.Cluster.TLSServerName}
	}
	if a.Server == nil {
		return Access{}, errors.New("it names no cluster")
	}
	for _, u := range k.Users {
		if u.Name != userName {
			continue
		}
		certificate, err := u.User.certificate(base)
		if err != nil {
			return Access{}, err
		}
		a.TLS.Certificates = []tls.Certificate{certificate}
		return a, nil
	}
	return Access{}, errors.New("it names no user")
}

// current returns the cluster and the user of the current context.
func (k kubeconfig) current() (clusterName, userName string) {
	for _, c := range k.Contexts {
		if c.Name == k.CurrentContext {
			return c.Context.Cluster, c.Context.User
		}
	}
	return "", ""
}

// authorities ignores what is no certificate, as x509.CertPool does.
func (c cluster) authorities(base string) ([]*x509.Certificate, error) {
	data, err := content(base, c.CA, c.CAData)
	if err != nil {
		return nil, fmt.Errorf("reading its certificate authority: %w", err)
	}
	var found []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = append(found, certificate)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("its certificate authority contains no certificate")
	}
	return found, nil
}

func (u user) certificate(base string) (tls.Certificate, error) {
	chain, err := content(base, u.Certificate, u.CertificateData)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading its client certificate: %w", err)
	}
	key, err := content(base, u.Key, u.KeyData)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading its client key: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading its client certificate: %w", err)
	}
	return pair, nil
}

// content returns the inline data, or the content of a file, whose path may be
// relative to the kubeconfig's directory base.
func content(base, path, data string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case path == "":
		return nil, errors.New("the kubeconfig has none")
	case !filepath.IsAbs(path):
		path = filepath.Join(base, path)
	}
	return os.ReadFile(path)
}
