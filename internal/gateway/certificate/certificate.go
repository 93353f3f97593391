// Package certificate has the serving certificate of the gateway's API for users: one that an
// administrator puts into a folder, or one that the manager issues itself.
package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// issueTimeout bounds how long a handshake waits for a certificate.
const issueTimeout = 10 * time.Second

// Names of files in a folder, as in a Secret of the type kubernetes.io/tls.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

// Source is where the certificate comes from. It is safe for concurrent use.
type Source interface {
	// Get implements tls.Config.GetCertificate.
	Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// CA returns the CA certificates, PEM, with which clients verify the certificate. It is
	// blank if they know the CA already.
	CA(ctx context.Context) (string, error)
	// NotAfter returns when the certificate expires; zero for one that is renewed in time.
	NotAfter() time.Time
	// Run keeps the certificate up to date until the context ends.
	Run(ctx context.Context) error
}

// folder is a Source.
type folder struct {
	*certwatcher.CertWatcher

	ca string
}

// FromFolder returns the certificate in the files tls.crt and tls.key of a folder, which are
// read again when they change. The file ca.crt is the CA; it may be missing.
func FromFolder(path string) (Source, error) {
	watcher, err := certwatcher.New(filepath.Join(path, certFile), filepath.Join(path, keyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the gateway's certificate: %w", err)
	}
	return &folder{CertWatcher: watcher, ca: filepath.Join(path, caFile)}, nil
}

func (f *folder) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.GetCertificate(hello) // always has one
}

func (f *folder) CA(context.Context) (string, error) {
	text, err := os.ReadFile(f.ca)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the CA of the gateway's certificate: %w", err)
	}
	return string(text), nil
}

func (f *folder) NotAfter() time.Time {
	cert, err := f.GetCertificate(nil) // does not look at the caller
	if err != nil || cert == nil || cert.Leaf == nil {
		return time.Time{}
	}
	return cert.Leaf.NotAfter
}

func (f *folder) Run(ctx context.Context) error { return f.Start(ctx) } // says which files

// Authority issues serving certificates.
type Authority interface {
	Leaf(ctx context.Context, names []string) (*tls.Certificate, error)
	Bundle(ctx context.Context) (string, error)
	// Subscribe calls f after each change of the CA, until stop is called.
	Subscribe(f func()) (stop func())
}

// issued is a Source.
type issued struct {
	authority Authority
	clock     clock.PassiveClock
	names     []string

	mu      sync.Mutex
	leaf    *tls.Certificate
	renewAt time.Time
}

// FromAuthority returns a certificate for DNS names and IP addresses. It is issued again after
// two thirds of its lifetime, and when the CA changes.
func FromAuthority(a Authority, c clock.PassiveClock, names ...string) Source {
	return &issued{authority: a, clock: c, names: names}
}

func (i *issued) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(hello.Context(), issueTimeout)
	defer cancel()
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.clock.Now()
	if i.leaf != nil && now.Before(i.renewAt) {
		return i.leaf, nil
	}
	leaf, err := i.authority.Leaf(ctx, i.names)
	if err != nil {
		return nil, fmt.Errorf("issuing the gateway's certificate: %w", err)
	}
	i.leaf, i.renewAt = leaf, now.Add(leaf.Leaf.NotAfter.Sub(now)*2/3)
	return leaf, nil
}

func (i *issued) CA(ctx context.Context) (string, error) { return i.authority.Bundle(ctx) } // says whose

func (i *issued) NotAfter() time.Time { return time.Time{} }

func (i *issued) Run(ctx context.Context) error {
	stop := i.authority.Subscribe(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.leaf = nil
	})
	defer stop()
	<-ctx.Done()
	return nil
}
