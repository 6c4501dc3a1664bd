# vault policy write auditor auditor.hcl
path "transit/decrypt/orders" {
  capabilities = ["update"]
}
