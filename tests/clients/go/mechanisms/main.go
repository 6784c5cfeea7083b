// amqp091-go over TLS with each mechanism; a wrong password is refused.
//
// Usage: mechanisms KAFKA AMQP FOLDER USER PASSWORD. FOLDER has ca.pem, the certificate and key of the client, which is
// USER's, and a token of the authorization server.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func connects(address string, config *tls.Config, login amqp.Authentication) error {
	connection, err := amqp.DialConfig("amqps://"+address+"/", amqp.Config{
		SASL: []amqp.Authentication{login}, TLSClientConfig: config, Vhost: "/",
	})
	if err != nil {
		return err
	}
	channel := must(connection.Channel())
	must(channel.QueueDeclare("go-mechanisms", true, false, false, false, nil))
	return connection.Close()
}

func main() {
	address, folder, user, right := os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	file := func(name string) string { return filepath.Join(folder, name) }
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(file("ca.pem")))) {
		panic("no authority")
	}
	own := must(tls.LoadX509KeyPair(file("client.pem"), file("client.key")))
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	token := string(must(os.ReadFile(file("token"))))
	for _, login := range []amqp.Authentication{
		&amqp.PlainAuth{Username: user, Password: right},
		&amqp.AMQPlainAuth{Username: user, Password: right},
		&amqp.ExternalAuth{},
		&amqp.PlainAuth{Username: user, Password: token},
	} {
		if err := connects(address, config, login); err != nil {
			panic(fmt.Sprintf("%s: %v", login.Mechanism(), err))
		}
	}
	for _, login := range []amqp.Authentication{
		&amqp.PlainAuth{Username: user, Password: "wrong"},
		&amqp.AMQPlainAuth{Username: user, Password: "wrong"},
		&amqp.PlainAuth{Username: user, Password: token + "A"},
	} {
		if connects(address, config, login) == nil {
			panic(login.Mechanism() + " let a wrong password in")
		}
	}
	fmt.Println("done")
}
