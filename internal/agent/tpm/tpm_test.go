package tpm_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm/softtpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// device starts a software TPM.
func device(t *testing.T) tpm.Device {
	t.Helper()
	return softtpm.Start(t)
}

func sign(t *testing.T, key *tpm.Key, d tpm.Device) error {
	t.Helper()
	digest := sha256.Sum256([]byte("message"))
	signature, err := d.Signer(key).Sign(rand.Reader, digest[:], crypto.SHA256)
	if err == nil && !ecdsa.VerifyASN1(key.Public(), digest[:], signature) {
		t.Fatal("the signature is not the key's")
	}
	return err
}

func TestKeySurvivesItsFile(t *testing.T) {
	d := device(t)
	key, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := tpm.Parse(text)
	if err != nil || !again.Public().Equal(key.Public()) {
		t.Fatalf("parsed another key: %v", err)
	}
	// A TPM would run out of memory if the keys were not released.
	for range 10 {
		if err := sign(t, again, d); err != nil {
			t.Fatal(err)
		}
	}
	if certificate, err := identity.ClientCertificate(d.Signer(again)); err != nil || !key.Public().Equal(certificate.Leaf.PublicKey) {
		t.Errorf("no client certificate: %v", err)
	}
	digest := sha512.Sum512([]byte("message"))
	if _, err := d.Signer(again).Sign(rand.Reader, digest[:], crypto.SHA512); err == nil {
		t.Error("signed a SHA-512 digest")
	}
	other, err := d.Create()
	if err != nil || other.Public().Equal(key.Public()) {
		t.Errorf("created the same key again: %v", err)
	}
}

// A key's file is useless with another TPM, and after its TPM was cleared.
func TestThreat05_KeyFileOfAnotherMachine(t *testing.T) {
	d := device(t)
	key, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	if err := sign(t, key, device(t)); !errors.Is(err, tpm.ErrLost) {
		t.Errorf("with another TPM: %v", err)
	}
	if err := sign(t, key, d); err != nil {
		t.Fatal(err)
	}
	clearTPM(t, d)
	if err := sign(t, key, d); !errors.Is(err, tpm.ErrLost) {
		t.Errorf("with a TPM that was cleared: %v", err)
	}
}

func clearTPM(t *testing.T, d tpm.Device) {
	t.Helper()
	connection, err := d.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	clearing := tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}
	if _, err := clearing.Execute(connection); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutATPM(t *testing.T) {
	none := tpm.Device{Path: filepath.Join(t.TempDir(), "none")}
	if _, err := none.Create(); !errors.Is(err, fs.ErrNotExist) || none.Present() {
		t.Errorf("got %v", err)
	}
	broken := tpm.Device{Path: "x", Open: func(string) (transport.TPMCloser, error) { return brokenTPM{}, nil }}
	if _, err := broken.Create(); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

var errBroken = errors.New("broken")

type brokenTPM struct{}

func (brokenTPM) Send([]byte) ([]byte, error) { return nil, errBroken }

func (brokenTPM) Close() error { return nil }

func TestParseRejectsInvalidText(t *testing.T) {
	key, err := device(t).Create()
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(text))
	for name, data := range map[string]string{
		"nothing":     "",
		"other PEM":   strings.ReplaceAll(text, tpm.PEMType, "PRIVATE KEY"),
		"cut off":     string(pem.EncodeToMemory(&pem.Block{Type: tpm.PEMType, Bytes: block.Bytes[:len(block.Bytes)-1]})),
		"too much":    string(pem.EncodeToMemory(&pem.Block{Type: tpm.PEMType, Bytes: append(block.Bytes, 0)})),
		"far too big": text + strings.Repeat("\n", 8<<10),
	} {
		if _, err := tpm.Parse(data); err == nil {
			t.Errorf("%s: parsed a key", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("-----BEGIN TSS2 PRIVATE KEY-----\nAAAA\n-----END TSS2 PRIVATE KEY-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := tpm.Parse(text)
		if err != nil {
			return
		}
		again, err := key.PEM()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := tpm.Parse(again); err != nil || !second.Public().Equal(key.Public()) {
			t.Errorf("not the same key: %v", err)
		}
	})
}
