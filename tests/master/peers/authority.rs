//! Certificates for masters, in files.

use std::path::PathBuf;

use moonkeeper::master::peer::PeerCertificates;
use moonkeeper::master::settings::peer::PeerTls;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// The name in all certificates.
pub const NAME: &str = "masters.demo";

/// One who signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let number = getrandom::u64().unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("authority {number:016x}"));
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate that says who it is.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a master and its key, after a change.
    pub fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// A good certificate, and this authority for others.
    pub fn master(&self) -> Files {
        Files::new(&self.pem(), self.sign(|_| {}))
    }
}

/// What one master is given; gone when this is dropped.
pub struct Files {
    folder: PathBuf,
    pub tls: PeerTls,
}

impl Files {
    pub fn new(ca: &str, own: (String, String)) -> Files {
        let number = getrandom::u64().unwrap();
        let folder = std::env::temp_dir().join(format!("moonkeeper-peer-files-{number:016x}"));
        std::fs::create_dir_all(&folder).unwrap();
        let [cert, key, authorities] = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.join(name));
        let files = Files { folder, tls: PeerTls { cert, key, ca: authorities, name: None } };
        files.write(ca, own);
        files
    }

    /// Takes the place of what was there.
    pub fn write(&self, ca: &str, (cert, key): (String, String)) {
        for (path, text) in [(&self.tls.cert, &*cert), (&self.tls.key, &key), (&self.tls.ca, ca)] {
            std::fs::write(path, text).unwrap();
        }
    }

    pub fn read(&self) -> PeerCertificates {
        PeerCertificates::read(self.tls.clone()).unwrap()
    }

    /// The same, and all masters must have this name.
    pub fn read_with_name(&self, name: &str) -> PeerCertificates {
        PeerCertificates::read(PeerTls { name: Some(name.to_owned()), ..self.tls.clone() }).unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
