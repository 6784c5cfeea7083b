// franz-go, Sarama and kafka-go over TLS with each mechanism that they have without another package; a wrong password or
// token is refused.
//
// Usage: mechanisms KAFKA AMQP FOLDER USER PASSWORD. FOLDER has ca.pem, the certificate and key of the client, which is
// USER's, and a token of the authorization server.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/IBM/sarama"
	segmentio "github.com/segmentio/kafka-go"
	segmentioplain "github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Guard against a hanging test; no step here needs to be quick.
const limit = time.Minute

var address, user string

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func expect(what string, err error, isRight bool) {
	if (err == nil) != isRight {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

// franz lists brokers; without a mechanism the certificate is the login.
func franz(config *tls.Config, mechanism sasl.Mechanism) error {
	options := []kgo.Opt{kgo.SeedBrokers(address), kgo.DialTLSConfig(config), kgo.RequestRetries(0)}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client := must(kgo.NewClient(options...))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := kadm.NewClient(client).ListBrokers(ctx)
	return err
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func inSarama(config *tls.Config, mechanism sarama.SASLMechanism, secret string) error {
	settings := sarama.NewConfig()
	settings.Net.TLS.Enable, settings.Net.TLS.Config = true, config
	settings.Metadata.Retry.Max = 0
	if mechanism != "" {
		settings.Net.SASL.Enable, settings.Net.SASL.Mechanism = true, mechanism
		settings.Net.SASL.User, settings.Net.SASL.Password = user, secret
		settings.Net.SASL.TokenProvider = token(secret)
	}
	client, err := sarama.NewClient([]string{address}, settings)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.RefreshMetadata()
}

func inKafkaGo(config *tls.Config, password string) error {
	dialer := &segmentio.Dialer{Timeout: limit, TLS: config}
	if password != "" {
		dialer.SASLMechanism = segmentioplain.Mechanism{Username: user, Password: password}
	}
	connection, err := dialer.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = connection.Brokers()
	return err
}

func main() {
	folder, right := os.Args[3], os.Args[5]
	address, user = os.Args[1], os.Args[4]
	file := func(name string) string { return filepath.Join(folder, name) }
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(file("ca.pem")))) {
		panic("no authority")
	}
	own := must(tls.LoadX509KeyPair(file("client.pem"), file("client.key")))
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: "localhost"}
	bearer := string(must(os.ReadFile(file("token"))))

	expect("franz-go by certificate", franz(config, nil), true)
	expect("sarama by certificate", inSarama(config, "", ""), true)
	expect("kafka-go by certificate", inKafkaGo(config, ""), true)
	for _, password := range []string{right, "wrong"} {
		isRight := password == right
		login := scram.Auth{User: user, Pass: password}
		expect("franz-go PLAIN", franz(config, plain.Auth{User: user, Pass: password}.AsMechanism()), isRight)
		expect("franz-go SCRAM-SHA-256", franz(config, login.AsSha256Mechanism()), isRight)
		expect("franz-go SCRAM-SHA-512", franz(config, login.AsSha512Mechanism()), isRight)
		expect("sarama PLAIN", inSarama(config, sarama.SASLTypePlaintext, password), isRight)
		expect("kafka-go PLAIN", inKafkaGo(config, password), isRight)
	}
	for _, given := range []string{bearer, bearer + "A"} {
		isRight := given == bearer
		expect("franz-go OAUTHBEARER", franz(config, oauth.Auth{Token: given}.AsMechanism()), isRight)
		expect("sarama OAUTHBEARER", inSarama(config, sarama.SASLTypeOAuth, given), isRight)
	}
	fmt.Println("done")
}
