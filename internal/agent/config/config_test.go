package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

func bundle(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return "trustBundle: |\n  " + strings.ReplaceAll(strings.TrimSpace(
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))), "\n", "\n  ") + "\n"
}

func TestParse(t *testing.T) {
	root := bundle(t)
	const servers = "servers: [https://10.0.0.1:30443]\n"
	for name, test := range map[string]struct{ text, err string }{
		"complete":          {text: servers + root + "token: abc\nstateDir: /data/agent\nrotateAfter: 1h\nreadoptAfter: 5m\n"},
		"least":             {text: servers + root},
		"empty":             {text: "", err: "servers: at least one"},
		"unknown key":       {text: servers + root + "tokn: x\n", err: "tokn"},
		"http":              {text: "servers: [http://a]\n" + root, err: "https://"},
		"credentials":       {text: "servers: ['https://u:hush@a']\n" + root, err: "more than"},
		"another back end":  {text: servers + root + "backend: Windows\n", err: "backend"},
		"another end":       {text: servers + root + "os: {install: {then: Explode}}\n", err: "os.install.then"},
		"a list in a path":  {text: servers + root + "os: {install: {cloudInit: ['a,b']}}\n", err: "os.install.cloudInit"},
		"no bundle":         {text: servers, err: "trustBundle"},
		"not a certificate": {text: servers + "trustBundle: x\n", err: "trustBundle"},
		"a key":             {text: servers + "trustBundle: |\n  -----BEGIN PRIVATE KEY-----\n  AAAA\n  -----END PRIVATE KEY-----\n", err: "certificates only"},
		"relative folder":   {text: servers + root + "stateDir: a\n", err: "stateDir"},
		"token of lines":    {text: servers + root + "token: \"a\\nb\"\n", err: "token"},
		"token of a list":   {text: servers + root + "token: [hush]\n", err: "line"},
		"never rotate":      {text: servers + root + "rotateAfter: 0s\n", err: "rotateAfter"},
		"not YAML":          {text: "{", err: "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Parse([]byte(test.text))
			if test.err == "" {
				if err != nil || c.Servers[0] != "https://10.0.0.1:30443" {
					t.Fatalf("got %v: %v", c, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v", err)
			}
		})
	}
	least, err := config.Parse([]byte(servers + root))
	if err != nil || least.StateDir != state.DefaultDir || least.RotateAfter != config.DefaultRotateAfter {
		t.Errorf("defaults: %+v: %v", least, err)
	}
	other, err := config.Parse([]byte("servers: [https://10.0.0.2]\n" + root + "token: hush\n"))
	if err != nil || other.Source() == least.Source() {
		t.Errorf("another server has the same source: %v", err)
	}
	for _, format := range []string{"%s", "%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(format, other); strings.Contains(text, "hush") {
			t.Errorf("prints the token: %s", text)
		}
	}
}

func TestLoadRefusesAFileThatOthersMayRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("servers: [https://a]\n"+bundle(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err != nil {
		t.Error(err)
	}
}
