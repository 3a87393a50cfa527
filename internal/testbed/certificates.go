package testbed

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are PEM files: what a server shows, and what a client needs to trust it and to show who it is.
type Certificates struct {
	CA         string // of the authority that signed the server's and the client's certificates
	ClientCert string // the client's certificate, with the name CN=client
	ClientKey  string // its key
	OtherCA    string // of an authority that signed nothing
	ServerCert string // the server's certificate, for 127.0.0.1 and localhost
	ServerKey  string // its key
	Server     string // key, certificate and authority in one file
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewCertificates makes a fresh authority and what it signs, in dir.
func NewCertificates(dir string) (*Certificates, error) {
	ca, err := newAuthority("cdc-relay test authority")
	if err != nil {
		return nil, err
	}
	other, err := newAuthority("somebody else's authority")
	if err != nil {
		return nil, err
	}
	serverCert, serverKey, err := ca.sign("localhost")
	if err != nil {
		return nil, err
	}
	clientCert, clientKey, err := ca.sign("client")
	if err != nil {
		return nil, err
	}
	file := func(name string, content ...[]byte) string {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(path, bytes.Join(content, nil), 0o600))
		return path
	}
	c := &Certificates{
		CA: file("ca.pem", ca.pem), OtherCA: file("other-ca.pem", other.pem),
		ClientCert: file("client.pem", clientCert), ClientKey: file("client-key.pem", clientKey),
		ServerCert: file("server-cert.pem", serverCert), ServerKey: file("server-key.pem", serverKey),
		Server: file("server.pem", serverKey, serverCert, ca.pem),
	}
	return c, err
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: block("CERTIFICATE", der)}, nil
}

// sign makes a key and a certificate for it, as PEM. Kafka, for one, reads keys in PKCS#8 only.
func (a *authority) sign(name string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{name}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8), nil
}

func certificate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // rand.Reader never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
